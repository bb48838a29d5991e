"""The host itself: processor, memory, storage, and the libraries that frameworks compute with."""
