"""What an access to memory costs: banks, sectors, matrix loads, swizzles."""
