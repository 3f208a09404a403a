// The public API for files of jobs: `millrace/storage`. It loads an HTTP client, and the packages for S3, on first use.
export {
  type DownloadAllOptions,
  type DownloadContext,
  type DownloadedFile,
  type DownloadOptions,
  download,
  downloadAll,
  downloadBytes,
} from './storage/download.ts';
export {
  openStorage,
  type Storage,
  type StorageOptions,
  type UploadedFile,
  type UploadOptions,
} from './storage/s3-storage.ts';
export type { UploadSource } from './storage/upload.ts';
