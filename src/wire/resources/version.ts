// Schemas of the versions of an endpoint's handler and of a rollout; their operations.
import { z } from 'zod';
import { ARCHIVE_LIMITS } from '../archive-limits.ts';
import {
  ANSWER_NOTHING,
  answerJson,
  bodyJson,
  describeOperations,
  JSON_TYPE,
  PAGE_PARAMETERS,
} from '../operations/operation.ts';
import { describePage } from '../operations/resource.ts';
import { FETCH_VERSION_ROUTES, VERSION_ROUTES } from '../routes/routes.ts';
import { ENDPOINT_EXAMPLE, endpointRecord } from './endpoint.ts';

export const GZIP_TYPE = 'application/gzip';

/** Where the handler is in the archive: no absolute path, no `.` or `..`, forward slashes. */
export const handlerEntry = z
  .string()
  .min(1)
  .max(ARCHIVE_LIMITS.pathBytes)
  .refine(
    (path) => path.split('/').every((part) => part !== '' && part !== '.' && part !== '..'),
    'must be a path inside the archive, such as src/handler.ts',
  )
  .refine((path) => /\.[cm]?[jt]s$/.test(path), 'must end with .ts, .js, .mts, .mjs, .cts or .cjs')
  // The archive itself refuses control characters.
  .refine((path) => !path.includes('\\'), 'must have forward slashes');

export const versionMessage = z.string().min(1).max(1_000);

export const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 hexadecimal digits');

/** A version of an endpoint's handler: it never changes. */
export const versionRecord = z.object({
  endpointId: z.string(),
  version: z.int().min(1).describe('Number of the version, counted from 1 for each endpoint'),
  entry: z.string().describe('Path of the handler in the archive'),
  message: z.string().nullable(),
  sha256: z.string().describe('Hash of the archive, hexadecimal'),
  bytes: z.int().describe('Size of the archive'),
  unpackedBytes: z.int().describe('Size of its files'),
  files: z.int().describe('Number of its files'),
  createdAt: z.iso.datetime(),
  createdBy: z.string().nullable().describe('ID of the key that uploaded it; null without a key'),
});
export type VersionRecord = z.infer<typeof versionRecord>;

/** Newest first. */
export const versionList = describePage('versions', versionRecord);

/** Body of `POST …/versions/{version}/deploy`. */
export const versionDeployment = z.strictObject({
  timeout: z
    .int()
    .min(5)
    .max(3_600)
    .default(600)
    .describe(
      'Seconds that the first worker has to install the version, load its handler and connect; ' +
        'after that the rollout fails and the earlier version keeps running',
    ),
});

const EXAMPLE: VersionRecord = {
  endpointId: ENDPOINT_EXAMPLE.id,
  version: 3,
  entry: 'handler.ts',
  message: 'Answer in German',
  sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  bytes: 18_432,
  unpackedBytes: 61_440,
  files: 12,
  createdAt: '2026-01-15T09:30:00.000Z',
  createdBy: 'key_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d72',
};

const ARCHIVE_BODY = { schema: z.string().meta({ format: 'binary' }), example: '(bytes)' };

const ARCHIVE = {
  200: {
    description: 'The archive.',
    headers: ['Millrace-Entry', 'Millrace-Sha256'],
    content: { [GZIP_TYPE]: ARCHIVE_BODY },
  },
} as const;

export const VERSION_OPERATIONS = describeOperations('endpoints', VERSION_ROUTES, {
  listVersions: {
    summary: "List the versions of an endpoint's handler",
    query: PAGE_PARAMETERS,
    answers: answerJson(versionList, 'One page, the newest first.', { versions: [EXAMPLE] }),
  },
  uploadVersion: {
    summary: "Upload a new version of an endpoint's handler",
    description:
      'The body is a tar.gz of at most 50 MB, with at most 20,000 files of together at most 250 MB. Links, ' +
      'devices and paths that leave the folder are refused. The version does not run before it is deployed. ' +
      'The platform keeps the newest 20 versions of an endpoint, the running one and the one before.',
    query: [
      {
        name: 'entry',
        schema: handlerEntry,
        description: 'path of the handler in the archive: `handler.ts`',
      },
      {
        name: 'sha256',
        schema: sha256.exactOptional(),
        description: 'hash of the body; another body is refused. Default: not checked',
      },
      {
        name: 'message',
        schema: versionMessage.exactOptional(),
        description: 'what is new in it, for people',
      },
    ],
    body: {
      ...ARCHIVE_BODY,
      mediaType: GZIP_TYPE,
      maxBytes: ARCHIVE_LIMITS.bytes,
    },
    answers: {
      201: {
        description: 'The version.',
        content: { [JSON_TYPE]: { schema: versionRecord, example: EXAMPLE } },
        headers: ['Location'],
      },
    },
    refusals: [409],
  },
  getVersion: {
    summary: "Show one version of an endpoint's handler",
    answers: answerJson(versionRecord, 'The version.', EXAMPLE),
  },
  getVersionArchive: {
    summary: "Download a version of an endpoint's handler",
    answers: ARCHIVE,
  },
  deployVersion: {
    summary: 'Deploy a version: replace the workers of the endpoint',
    description:
      'First one worker starts with the version. If it loads the handler and connects, the platform replaces ' +
      'the other workers, new ones ready first. Otherwise the rollout is FAILED and the earlier version keeps ' +
      'running. `rollout` of the endpoint has the state. An older version is deployed in the same way. A further ' +
      'deployment replaces one under way.',
    body: { ...bodyJson(versionDeployment, { timeout: 120 }), presence: 'optional' },
    answers: answerJson(endpointRecord, 'The endpoint, with its `rollout`.', ENDPOINT_EXAMPLE),
    refusals: [409],
  },
  removeVersion: {
    summary: 'Delete a version that is neither running nor being deployed',
    answers: ANSWER_NOTHING,
    refusals: [409],
  },
});

/** Not in the API's description, like all verbs of workers. */
export const FETCH_VERSION_OPERATIONS = describeOperations('endpoints', FETCH_VERSION_ROUTES, {
  fetchVersion: {
    summary: "Download a version, for the endpoint's workers",
    description:
      'The same answer as for `/archive`, with a worker key; 304 if `If-None-Match` has the hash of the archive in quotes.',
    answers: ARCHIVE,
  },
});
