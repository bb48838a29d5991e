"""The host itself: processor and memory."""
