"""What a user builds: a program of one call, a kernel of many."""
