"""The front: sockets, and limits for the connections of uvicorn. It knows nothing about models."""
