"""What a caller says, in Python's types or as text, made into ours."""
