"""From one distributed layout to another: what moves, and by which instructions."""
