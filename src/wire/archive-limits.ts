// The limits of a handler's archive, which the command packs, the platform checks and workers unpack. It loads no
// zod, because workers load it.

export const ARCHIVE_LIMITS = {
  /** Size of the gzip file. */
  bytes: 50 * 1_048_576,
  /** Size of all files together. */
  unpackedBytes: 250 * 1_048_576,
  files: 20_000,
  /** Bytes of a path in UTF-8. */
  pathBytes: 512,
  /** Folders in a path, and the file. */
  pathDepth: 32,
} as const;

export type ArchiveLimits = Readonly<Record<keyof typeof ARCHIVE_LIMITS, number>>;
