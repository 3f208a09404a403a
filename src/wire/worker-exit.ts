// Exit codes of `millrace worker` that the platform understands when a pod ends.

/** The handler cannot be loaded: another worker would fail in the same way. */
export const EXIT_HANDLER_NOT_LOADED = 5;

/** The platform has refused the worker's key, or has had no such endpoint, for the whole of `--auth-timeout`. */
export const EXIT_REFUSED = 6;
