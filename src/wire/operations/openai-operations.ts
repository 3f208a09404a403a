// The operations of the OpenAI API of an endpoint: requests that become jobs, and files and batches, in OpenAI's form.
import { z } from 'zod';
import { BATCH_LIMITS } from '../job/batch.ts';
import { LIMITS } from '../job/job.ts';
import { OPENAI_BATCH_ROUTES, OPENAI_ROUTES } from '../routes/routes.ts';
import { answerJson, describeOperations, JSON_TYPE, type Parameter } from './operation.ts';

const openAiError = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }),
});

const errors = {
  schema: openAiError,
  example: {
    error: {
      message: 'Invalid, unknown or expired API key.',
      type: 'authentication_error',
      param: null,
      code: 'invalid_api_key',
    },
  },
};

const model = z.looseObject({ id: z.string(), object: z.string() });
const MODEL = { id: 'small-model', object: 'model' };

const answerModel = <S extends z.ZodType>(schema: S, example: z.output<S>) => ({
  200: { description: 'Answer of the handler.', content: { [JSON_TYPE]: { schema, example } } },
});

export const OPENAI_OPERATIONS = describeOperations('openai', OPENAI_ROUTES, {
  postOpenAi: {
    summary: 'Send a request of the OpenAI API to the handler',
    description:
      '`path` is everything behind `/v1/`, such as `chat/completions`. The request becomes a job with the input ' +
      '`{ "openai_route": "/v1/<path>", "openai_input": <body> }`; its output is the answer. With `"stream": true` ' +
      'each chunk of the job is an event. The job is cancelled if the client disconnects, and after 10 minutes ' +
      `without an answer or a first chunk. At most ${LIMITS.runBodyBytes} bytes.`,
    body: {
      schema: z.looseObject({ stream: z.boolean().exactOptional() }),
      example: {
        model: MODEL.id,
        messages: [{ role: 'user', content: 'Hello' }],
      },
      maxBytes: LIMITS.runBodyBytes,
    },
    answers: {
      200: {
        description: 'Answer of the handler.',
        content: {
          [JSON_TYPE]: {
            schema: z.looseObject({ object: z.string() }),
            example: { object: 'chat.completion', choices: [] },
          },
          'text/event-stream': {
            schema: z.string(),
            example: 'data: {"choices":[]}\n\ndata: [DONE]\n\n',
          },
        },
      },
    },
    errors,
  },
  getOpenAiModels: {
    summary: 'Read the models from the handler',
    description: 'A job with the input `{ "openai_route": "/v1/models", "openai_input": {} }`.',
    answers: answerModel(z.object({ object: z.string(), data: z.array(model) }), {
      object: 'list',
      data: [MODEL],
    }),
    errors,
  },
  getOpenAiModel: {
    summary: 'Read one model from the handler',
    description: 'The model of this ID in the answer for `/v1/models`.',
    answers: answerModel(model, MODEL),
    errors,
  },
});

const FILE_ID = 'file-01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76';
const BATCH_ID = 'batch_01912f4e-7b0a-7a11-8c52-0d6b8a1c4d70';
const MB = 1_048_576;

const file = z.object({
  id: z.string(),
  object: z.literal('file'),
  bytes: z.int(),
  created_at: z.int(),
  expires_at: z.int(),
  filename: z.string(),
  purpose: z.enum(['batch', 'batch_output']),
  status: z.literal('processed'),
});

const FILE: z.infer<typeof file> = {
  id: FILE_ID,
  object: 'file',
  bytes: 182,
  created_at: 1_768_469_400,
  expires_at: 1_771_061_400,
  filename: 'requests.jsonl',
  purpose: 'batch',
  status: 'processed',
};

const seconds = z.int().nullable();

const batch = z.object({
  id: z.string(),
  object: z.literal('batch'),
  endpoint: z.string(),
  errors: z.null(),
  input_file_id: z.string(),
  completion_window: z.string(),
  status: z.enum(['in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled']),
  output_file_id: z.string().nullable(),
  error_file_id: z.string().nullable(),
  created_at: z.int(),
  in_progress_at: z.int(),
  expires_at: z.int(),
  finalizing_at: seconds,
  completed_at: seconds,
  failed_at: z.null(),
  expired_at: seconds,
  cancelling_at: seconds,
  cancelled_at: seconds,
  request_counts: z.object({ total: z.int(), completed: z.int(), failed: z.int() }),
  metadata: z.record(z.string(), z.string()).nullable(),
});

const BATCH: z.infer<typeof batch> = {
  id: BATCH_ID,
  object: 'batch',
  endpoint: '/v1/chat/completions',
  errors: null,
  input_file_id: FILE_ID,
  completion_window: '24h',
  status: 'in_progress',
  output_file_id: null,
  error_file_id: null,
  created_at: 1_768_469_400,
  in_progress_at: 1_768_469_400,
  expires_at: 1_768_555_800,
  finalizing_at: null,
  completed_at: null,
  failed_at: null,
  expired_at: null,
  cancelling_at: null,
  cancelled_at: null,
  request_counts: { total: 2, completed: 1, failed: 0 },
  metadata: null,
};

const listOf = <S extends z.ZodType>(one: S) =>
  z.object({
    object: z.literal('list'),
    data: z.array(one),
    has_more: z.boolean(),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
  });

const LIST_PARAMETERS: readonly Parameter[] = [
  {
    name: 'after',
    schema: z.string().exactOptional(),
    description: 'ID of the last record of the page before; without it the newest ones',
  },
  {
    name: 'limit',
    schema: z.int().min(1).max(10_000).default(20),
    description: `records in one page, at most ${BATCH_LIMITS.listed}`,
  },
];

const { metadata, retentionMs, windowMs } = BATCH_LIMITS;

export const openAiExpiry = z
  .object({
    anchor: z.literal('created_at'),
    seconds: z
      .int()
      .min(retentionMs.min / 1_000)
      .max(retentionMs.max / 1_000),
  })
  .describe('When the files of results are removed. Default: after 30 days');

const UNITS: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** ms; undefined: no time that a batch can have. */
export function readWindow(text: string): number | undefined {
  const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  const ms = Number(count) * (UNITS[unit ?? ''] ?? Number.NaN);
  return ms >= windowMs.min && ms <= windowMs.max ? ms : undefined;
}

export const openAiBatchCreation = z.object({
  input_file_id: z.string().max(100),
  endpoint: z.string().max(300).describe('The `url` of all lines'),
  completion_window: z
    .string()
    .refine((text) => readWindow(text) !== undefined, 'must be a time from 60s to 7d, such as 24h')
    .describe('Time from the creation until what has not ended is given up: `24h`, or 60s to 7d'),
  metadata: z
    .record(z.string().max(metadata.keyCharacters), z.string().max(metadata.valueCharacters))
    .refine(
      (pairs) => Object.keys(pairs).length <= metadata.pairs,
      `has more than ${metadata.pairs} pairs`,
    )
    .nullish(),
  output_expires_after: openAiExpiry.optional(),
});

const openAiFileForm = z.object({
  purpose: z.literal('batch'),
  file: z.string().describe('One line for each request: `custom_id`, `method`, `url`, `body`'),
  'expires_after[anchor]': z.literal('created_at').optional(),
  'expires_after[seconds]': z.string().optional(),
});

const LINE =
  '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"small-model","messages":[]}}';

export const OPENAI_BATCH_OPERATIONS = describeOperations('openai', OPENAI_BATCH_ROUTES, {
  uploadOpenAiFile: {
    summary: 'Upload the requests of a batch',
    description: `JSON lines: at most ${BATCH_LIMITS.fileBytes / MB} MB, ${BATCH_LIMITS.lines} lines and ${BATCH_LIMITS.lineBytes / MB} MB a line. Each line is checked: a refusal names the numbers and paths of the first ${BATCH_LIMITS.describedLines} bad ones. A user has at most ${BATCH_LIMITS.filesOfUser} files and ${BATCH_LIMITS.fileBytesOfUser / MB} MB.`,
    body: {
      schema: openAiFileForm,
      mediaType: 'multipart/form-data',
      example: { purpose: 'batch', file: LINE },
      maxBytes: BATCH_LIMITS.fileBytes + MB,
      isStreamed: true,
    },
    answers: answerJson(file, 'The file is on disk.', FILE),
    errors,
  },
  listOpenAiFiles: {
    summary: 'List files, newest first',
    query: [
      ...LIST_PARAMETERS,
      {
        name: 'purpose',
        schema: z.string().exactOptional(),
        description: 'only files with this purpose',
      },
      {
        name: 'order',
        schema: z.enum(['desc']).exactOptional(),
        description: 'the newest first',
      },
    ],
    answers: answerJson(listOf(file), 'One page.', {
      ...{ object: 'list', data: [FILE], has_more: false, first_id: FILE_ID, last_id: FILE_ID },
    }),
    errors,
  },
  getOpenAiFile: {
    summary: 'Show a file',
    answers: answerJson(file, 'The file, without its content.', FILE),
    errors,
  },
  deleteOpenAiFile: {
    summary: 'Delete a file',
    description: 'Not the input of a batch that has not ended.',
    answers: answerJson(
      z.object({ id: z.string(), object: z.literal('file'), deleted: z.literal(true) }),
      'The file is deleted.',
      { id: FILE_ID, object: 'file', deleted: true },
    ),
    errors,
  },
  getOpenAiFileContent: {
    summary: 'Read the content of a file',
    answers: {
      200: {
        description: 'The bytes of the file.',
        content: { 'application/octet-stream': { schema: z.string(), example: `${LINE}\n` } },
      },
    },
    errors,
  },
  createOpenAiBatch: {
    summary: 'Run the requests of a file as jobs',
    description: `Their priority is below that of all other jobs. At most ${BATCH_LIMITS.liveJobs} of them wait or run at a time. A user has at most ${BATCH_LIMITS.openBatchesOfUser} batches that have not ended.`,
    body: {
      schema: openAiBatchCreation,
      example: {
        input_file_id: FILE_ID,
        endpoint: '/v1/chat/completions',
        completion_window: '24h',
      },
      maxBytes: 65_536,
    },
    answers: answerJson(batch, 'The batch is on disk.', BATCH),
    errors,
  },
  listOpenAiBatches: {
    summary: 'List batches, newest first',
    query: LIST_PARAMETERS,
    answers: answerJson(listOf(batch), 'One page.', {
      ...{ object: 'list', data: [BATCH], has_more: false },
      ...{ first_id: BATCH_ID, last_id: BATCH_ID },
    }),
    errors,
  },
  getOpenAiBatch: {
    summary: 'Show a batch',
    answers: answerJson(batch, 'The batch.', BATCH),
    errors,
  },
  cancelOpenAiBatch: {
    summary: 'Cancel a batch',
    description:
      'Its jobs are cancelled, and lines without a job get none. What has ended stays in the output file; the error file names the rest.',
    answers: answerJson(batch, 'The batch is being cancelled.', { ...BATCH, status: 'cancelling' }),
    errors,
  },
});
