// Memory outside of the engine's heap that nobody needs any more, given back at once: the collector sees
// only the small objects in front of it, and lets tens of megabytes lie.

/** Smaller ones may lie in memory that they share, and are no burden. */
const WORTH_BYTES = 16_384;

/**
 * For who knows that nobody looks at `bytes` any more: they are empty from then on. Left alone if they
 * share their memory with more than `othersBytes`, which would be lost with them.
 */
export function giveBack({ buffer, byteLength }: Uint8Array, othersBytes = 0): void {
  const isOwn = buffer.byteLength - byteLength <= othersBytes;
  if (isOwn && byteLength >= WORTH_BYTES && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
