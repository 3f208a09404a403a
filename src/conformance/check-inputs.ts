// The inputs that a worker under test receives: the handler must support each of them.

export type CheckInput =
  /** Returns `value`, after `ms`; over RunPod's protocol it may yield it instead. */
  | { do: 'echo'; value: unknown; ms?: number }
  /** Yields `count` objects `{"index": 0, "text": "xx…"}`, each text of `bytes` x. */
  | { do: 'stream'; count: number; bytes: number }
  /** Throws an error with this message. */
  | { do: 'fail'; message: string }
  /** Ends only when it is cancelled or times out. */
  | { do: 'hang' };

/** The values that `stream` yields. */
export function listYields({ bytes, count }: { count: number; bytes: number }): unknown[] {
  const text = 'x'.repeat(bytes);
  return Array.from({ length: count }, (_, index) => ({ index, text }));
}

/** For the help text: one line for each input. */
export const CHECK_INPUT_LINES = [
  '{"do":"echo","value":V,"ms":N}: returns V, after N ms if N is present',
  '{"do":"stream","count":C,"bytes":B}: yields C objects {"index":I,"text":T}, I from 0, T is the letter x, B times',
  '{"do":"fail","message":M}: throws an error with the message M',
  '{"do":"hang"}: ends only when it is cancelled or times out',
] as const;
