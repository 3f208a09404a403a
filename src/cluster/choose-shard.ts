// Chooses the shard of a new endpoint.

/** Of a database whose first node names no number. */
export const DEFAULT_SHARDS = 16;

/** FNV-1a, 32 bits. @returns from 0 to below `shards` */
export function chooseShard(endpointId: string, shards: number): number {
  let hash = 0x81_1c_9d_c5;
  for (const byte of Buffer.from(endpointId)) hash = Math.imul(hash ^ byte, 0x01_00_01_93);
  return (hash >>> 0) % Math.max(1, shards);
}
