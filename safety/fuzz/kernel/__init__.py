"""The C kernel without Python, under AddressSanitizer and UndefinedBehaviorSanitizer."""
