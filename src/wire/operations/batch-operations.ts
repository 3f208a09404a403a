// The operations of batches in Millrace's own form. OpenAI's are in openai-operations.ts.
import { z } from 'zod';
import { BATCH_LIMITS } from '../job/batch.ts';
import { type BatchRecord, batchList, batchRecord } from '../job/batch-records.ts';
import { BATCH_ROUTES } from '../routes/routes.ts';
import { answerJson, describeOperations, PAGE_PARAMETERS } from './operation.ts';

/** One JSON text in each line. */
export const LINES_TYPE = 'application/x-ndjson';

const BATCH: BatchRecord = {
  id: 'batch_01912f4e-7b0a-7a11-8c52-0d6b8a1c4d70',
  state: 'running',
  total: 2,
  completed: 1,
  failed: 0,
  live: 1,
  createdAt: 1_768_469_400_000,
  expiresAt: 1_768_555_800_000,
  endedAt: null,
};

const MB = 1_048_576;
const { windowMs } = BATCH_LIMITS;

export const BATCH_OPERATIONS = describeOperations('batches', BATCH_ROUTES, {
  runBatch: {
    summary: 'Run the lines of a file as jobs',
    description: `Each line is \`{"id": "…", "input": {…}}\`, with an ID of its own. At most ${BATCH_LIMITS.fileBytes / MB} MB, ${BATCH_LIMITS.lines} lines and ${BATCH_LIMITS.lineBytes / MB} MB a line. The lines are checked while they arrive: a refusal names the numbers and paths of the first ${BATCH_LIMITS.describedLines} bad ones. The priority of the jobs is below that of all others, and at most ${BATCH_LIMITS.liveJobs} of them wait or run at a time. A user has at most ${BATCH_LIMITS.openBatchesOfUser} batches that have not ended.`,
    query: [
      {
        name: 'window',
        schema: z.int().min(windowMs.min).max(windowMs.max).default(windowMs.default),
        description: 'time until what has not ended is given up, ms',
      },
      {
        name: 'name',
        schema: z.string().max(BATCH_LIMITS.fileNameCharacters).exactOptional(),
        description: 'name of the file',
      },
    ],
    body: {
      schema: z.string(),
      mediaType: LINES_TYPE,
      example: '{"id":"a","input":{"text":"one"}}\n{"id":"b","input":{"text":"two"}}\n',
      maxBytes: BATCH_LIMITS.fileBytes,
      isStreamed: true,
    },
    answers: answerJson(batchRecord, 'The batch is on disk.', BATCH),
    refusals: [409, 429],
  },
  listBatches: {
    summary: 'List batches, newest first',
    query: [
      ...PAGE_PARAMETERS,
      {
        name: 'ended',
        schema: z.enum(['true', 'false']).exactOptional(),
        description: 'only batches that have ended, or only those that have not',
      },
    ],
    answers: answerJson(batchList, 'One page.', { batches: [BATCH] }),
  },
  getBatch: {
    summary: 'Show a batch',
    answers: answerJson(batchRecord, 'The batch.', BATCH),
  },
  cancelBatch: {
    summary: 'Cancel a batch',
    description: 'Its jobs are cancelled soon, and lines without a job get none.',
    answers: answerJson(batchRecord, 'The batch is being cancelled.', BATCH),
    refusals: [409],
  },
  getBatchResults: {
    summary: 'Read the results of a batch that has ended',
    description:
      'One line for each line of the input, in the order in which the jobs ended: `id` and the record of its `job`. A batch of another form has lines of that form.',
    query: [
      {
        name: 'failed',
        schema: z.enum(['true', 'false']).default('false'),
        description: 'the lines without a COMPLETED job: with an `error` if there is no job',
      },
    ],
    answers: {
      200: {
        description: 'The lines.',
        content: {
          'application/octet-stream': {
            schema: z.string(),
            example: '{"id":"a","job":{"id":"01912f4e-…","status":"COMPLETED","output":3}}\n',
          },
        },
      },
    },
    refusals: [409],
  },
});
