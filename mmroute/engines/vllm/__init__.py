"""vLLM: what its API accepts, how it renders chats, names images and limits prompts."""
