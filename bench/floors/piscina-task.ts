// Floor of running a job in a thread: a task that returns its input.
export default (input: unknown): unknown => input;
