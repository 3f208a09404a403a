// Frees the memory of byte arrays at once. The garbage collector sees only the small objects that
// refer to them and may keep tens of megabytes.

/** Smaller arrays may share a pool, and cost little. */
const WORTH_BYTES = 16_384;

/**
 * Detaches the memory of `bytes`, which are empty afterwards; call it only if no code reads them
 * again. Does nothing if the buffer holds more than `othersBytes` besides them.
 */
export function giveBack({ buffer, byteLength }: Uint8Array, othersBytes = 0): void {
  const isOwn = buffer.byteLength - byteLength <= othersBytes;
  if (isOwn && byteLength >= WORTH_BYTES && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
