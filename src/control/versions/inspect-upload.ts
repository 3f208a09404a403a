// Checks the archive of an uploaded version. The reader is loaded with the first upload.
import type { ArchiveSummary } from '../../archive/inspect-in-thread.ts';
import { ProblemError } from '../../wire/problem.ts';

/** @throws ProblemError `invalid` that names the path or the limit */
export async function inspectUpload(archive: Uint8Array, entry: string): Promise<ArchiveSummary> {
  const [{ inspectInThread }, { ArchiveError }] = await Promise.all([
    import('../../archive/inspect-in-thread.ts'),
    import('../../archive/archive-error.ts'),
  ]);
  try {
    return await inspectInThread(archive, entry);
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    throw new ProblemError('invalid', `The body is not a valid archive: ${error.message}`, {
      errors: [`body: ${error.message}`],
      cause: error,
    });
  }
}
