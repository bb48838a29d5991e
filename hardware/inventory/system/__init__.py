"""The host: processor, memory, storage, and the libraries that frameworks compute with."""
