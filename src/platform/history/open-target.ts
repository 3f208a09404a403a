// Opens the folder or the bucket of the history of jobs that the options name.
import { accessSync, constants, statSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import { type ChooseProxy, noProxy } from '../../base/net/outgoing-proxy.ts';
import type { HistoryTarget } from '../../queue/history/history-files.ts';
import { PlatformOptionError, readOptionFile } from '../option-error.ts';
import { FolderTarget } from './folder-target.ts';
import { S3Target } from './s3-target.ts';

export interface HistoryOptions {
  /** `file:/absolute/folder` or `s3://bucket/prefix`. */
  to: string;
  /** S3: URL of the server. Default: Amazon's, of the region. */
  s3Url?: string | undefined;
  /** S3: region of the signature. Default `us-east-1`. */
  s3Region?: string | undefined;
  /** S3: file with the access ID and the secret, one a line. */
  keyFile?: string | undefined;
  /** Folder: days for which files are kept. Default: without an end. */
  keepDays?: number | undefined;
}

/** Excludes ARNs and other names that stand for another host. */
const S3_PLACE = /^s3:\/\/([A-Za-z0-9][A-Za-z0-9._-]{1,62})(?:\/([A-Za-z0-9._/=-]{0,512}))?$/;
const REGION = /^[A-Za-z0-9-]{1,64}$/;
const DEFAULT_REGION = 'us-east-1';
const ACCESS_ID = /^[\x21-\x7e]{1,256}$/;

/** Undefined: no job has a history. @throws PlatformOptionError */
export function openHistoryTarget(
  options: HistoryOptions | undefined,
  chooseProxy: ChooseProxy = noProxy,
): HistoryTarget | undefined {
  if (!options) return undefined;
  const { keepDays, to } = options;
  const [, bucket, prefix = ''] = S3_PLACE.exec(to) ?? [];
  const isRelative = prefix.split('/').some((segment) => segment === '.' || segment === '..');
  if (bucket !== undefined && !isRelative) {
    if (keepDays !== undefined) {
      throw refuse('keepDays', 'is for a folder; in S3, set a lifecycle rule of the bucket');
    }
    return openBucket(options, { bucket, prefix, chooseProxy });
  }
  const folder = to.startsWith('file:') ? to.slice('file:'.length) : undefined;
  if (folder === undefined || !isAbsolute(folder)) {
    throw refuse('to', `${to} is neither file:/folder nor s3://bucket/prefix`);
  }
  checkFolder(folder);
  return new FolderTarget({ folder, keepDays, now: () => systemClock.now() });
}

interface Bucket {
  bucket: string;
  prefix: string;
  chooseProxy: ChooseProxy;
}

function openBucket(
  { keyFile, s3Region: region = DEFAULT_REGION, s3Url }: HistoryOptions,
  { bucket, chooseProxy, prefix }: Bucket,
): S3Target {
  if (!REGION.test(region)) throw refuse('s3Region', `${region} is no name of a region`);
  const url = URL.parse(s3Url ?? `https://s3.${region}.amazonaws.com`);
  const isHttp = url?.protocol === 'https:' || url?.protocol === 'http:';
  if (!url || !isHttp || url.username !== '' || url.password !== '' || url.search !== '') {
    throw refuse('s3Url', 'must be an http or https URL without user, password and query');
  }
  const [accessId = '', accessSecret = ''] = readKey(keyFile);
  const path = prefix.replaceAll(/^\/+|\/+$/g, '');
  return new S3Target({
    ...{ url, region, bucket, accessId, accessSecret, chooseProxy },
    prefix: path === '' ? '' : `${path}/`,
  });
}

/** Never shows a secret. */
function readKey(path: string | undefined): string[] {
  if (path === undefined) throw refuse('keyFile', 'is needed for S3');
  const content = readOptionFile('history.keyFile', path);
  if (content === undefined) throw refuse('keyFile', `${path} does not exist`);
  const lines = content.split(/\r?\n/).map((line) => line.trim());
  const given = lines.filter((line) => line !== '' && !line.startsWith('#'));
  if (given.length === 2 && given.every((line) => ACCESS_ID.test(line))) return given;
  throw refuse('keyFile', `${path} must have two lines: the access ID, and the secret`);
}

function checkFolder(folder: string): void {
  try {
    if (!statSync(folder).isDirectory()) throw new Error('it is no folder');
    accessSync(folder, constants.W_OK);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw refuse('to', `${folder} cannot be written: ${reason}`);
  }
}

function refuse(option: keyof HistoryOptions, problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', `history.${option}`, problem);
}
