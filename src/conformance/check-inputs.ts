// The inputs that a worker under test is sent: what its handler has to be able to do.

export type Deed =
  /** Returns `value`, after `ms`; over RunPod's protocol it may yield it instead. */
  | { do: 'echo'; value: unknown; ms?: number }
  /** Yields `{"index": 0, "text": "xx…"}` and so on, `count` in all, each text of `bytes` x. */
  | { do: 'stream'; count: number; bytes: number }
  /** Throws an error with this message. */
  | { do: 'fail'; message: string }
  /** Ends only when it is told to. */
  | { do: 'hang' };

/** What `stream` yields. */
export function listYields({ bytes, count }: { count: number; bytes: number }): unknown[] {
  const text = 'x'.repeat(bytes);
  return Array.from({ length: count }, (_, index) => ({ index, text }));
}

/** For help and documents: one line for each deed. */
export const DEED_LINES = [
  '{"do":"echo","value":V,"ms":N}: returns V, after N ms if there is an N',
  '{"do":"stream","count":C,"bytes":B}: yields C objects {"index":I,"text":T}, I from 0, T of B times x',
  '{"do":"fail","message":M}: throws an error with the message M',
  '{"do":"hang"}: ends only when it is cancelled',
] as const;
