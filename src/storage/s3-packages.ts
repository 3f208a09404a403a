// Loads the packages for S3 on first use: from the handler's project, which installs them, else from beside this package.
import { createRequire } from 'node:module';
import { readHandlerFile } from '../handler/loading/handler-file.ts';
import { NonRetryableError } from '../handler/retry-errors.ts';

export interface S3Packages {
  client: typeof import('@aws-sdk/client-s3');
  presigner: typeof import('@aws-sdk/s3-request-presigner');
}

let loaded: S3Packages | undefined;

/** @throws NonRetryableError that names the command which installs the packages */
export function loadS3Packages(): S3Packages {
  loaded ??= loadFrom(readHandlerFile()) ?? loadFrom(import.meta.url);
  if (loaded) return loaded;
  throw new NonRetryableError(
    'uploads to S3 need two packages in the project of the handler: ' +
      'npm install @aws-sdk/client-s3 @aws-sdk/s3-request-presigner',
  );
}

/** Undefined if a package is not installed there. */
export function loadFrom(file: string | undefined): S3Packages | undefined {
  if (file === undefined) return undefined;
  const load = createRequire(file);
  try {
    return { client: load('@aws-sdk/client-s3'), presigner: load('@aws-sdk/s3-request-presigner') };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}
