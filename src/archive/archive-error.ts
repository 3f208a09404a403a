// The errors for an archive that breaks a rule or a limit.
import type { ArchiveLimits } from '../wire/archive-limits.ts';

const BYTES_PER_MB = 1_048_576;

/** The archive, or a folder to pack, breaks a rule; the message names the path, the value and the limit. */
export class ArchiveError extends Error {
  override readonly name = 'ArchiveError';
}

export function tooManyFiles(limits: ArchiveLimits): ArchiveError {
  return new ArchiveError(`The archive has more than ${limits.files} files`);
}

export function tooLargeUnpacked(limits: ArchiveLimits): ArchiveError {
  return new ArchiveError(
    `The files have more than ${formatMegabytes(limits.unpackedBytes)} together`,
  );
}

export function tooLargePacked(limits: ArchiveLimits): ArchiveError {
  return new ArchiveError(`The archive has more than ${formatMegabytes(limits.bytes)}`);
}

function formatMegabytes(bytes: number): string {
  const megabytes = bytes / BYTES_PER_MB;
  return megabytes >= 1 ? `${Math.round(megabytes)} MB` : `${bytes} bytes`;
}
