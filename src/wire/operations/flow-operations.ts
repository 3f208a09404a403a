// The operations of flows: graphs of jobs that one request submits.

import { flowChange, flowList, flowRecord, flowReference } from '../job/flow-records.ts';
import { LIMITS } from '../job/job.ts';
import { flowRequest, flowSelection } from '../job/job-schemas.ts';
import { FLOW_ROUTES } from '../routes/routes.ts';
import { answerJson, describeOperations, PAGE_PARAMETERS } from './operation.ts';

const FLOW_ID = '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76';
const [SCENE_ID, POSTER_ID] = [
  '01912f4e-7b0a-7a11-8c52-0d6b8a1c4d70',
  '01912f4e-7b0a-7b22-9d53-1e6b8a1c4d71',
];

const SUMMARY = {
  id: FLOW_ID,
  status: 'RUNNING',
  createdAt: 1_768_469_400_000,
  endedAt: null,
  total: 2,
  counts: { open: 1, completed: 1, failed: 0, timedOut: 0, cancelled: 0, skipped: 0, removed: 0 },
} as const;

const SELECTION = {
  schema: flowSelection,
  example: { jobs: ['poster'] },
  presence: 'optional',
} as const;

export const FLOW_OPERATIONS = describeOperations('flows', FLOW_ROUTES, {
  runFlow: {
    summary: 'Queue a graph of jobs',
    description: `All of its jobs are accepted, or none. At most ${LIMITS.runBodyBytes} bytes, ${LIMITS.jobsOfFlow} jobs and ${LIMITS.edgesOfFlow} edges. The key needs \`jobs:write\` for each endpoint, and the endpoints must have one owner. The record is kept ${LIMITS.flowRetentionMs / 3_600_000} hours, and until the flow has ended.`,
    body: {
      schema: flowRequest,
      example: {
        jobs: [
          { name: 'scene', input: { prompt: 'A lighthouse at dusk' } },
          {
            name: 'poster',
            endpoint: 'printer',
            input: { title: 'Harbour' },
            after: ['scene'],
          },
        ],
      },
      maxBytes: LIMITS.runBodyBytes,
    },
    answers: answerJson(flowReference, 'The jobs are on disk.', {
      id: FLOW_ID,
      jobs: [
        { name: 'scene', endpoint: 'painter', id: SCENE_ID },
        { name: 'poster', endpoint: 'printer', id: POSTER_ID },
      ],
    }),
    refusals: [409, 429],
  },
  listFlows: {
    summary: 'List flows, newest first',
    query: PAGE_PARAMETERS,
    answers: answerJson(flowList, 'One page.', { flows: [SUMMARY] }),
  },
  getFlow: {
    summary: 'Show a flow with its jobs and edges',
    answers: answerJson(flowRecord, 'The flow.', {
      ...SUMMARY,
      jobs: [
        { name: 'scene', endpoint: 'painter', id: SCENE_ID, state: 'COMPLETED', after: [] },
        {
          name: 'poster',
          endpoint: 'printer',
          id: POSTER_ID,
          state: 'IN_PROGRESS',
          after: [{ job: 'scene', onFailure: 'fail' }],
        },
      ],
    }),
  },
  cancelFlow: {
    summary: 'Cancel the jobs of a flow that have not ended',
    description:
      'With `jobs` only these; what becomes of their children, their edges say. The key needs `jobs:write` for each endpoint of the flow.',
    body: SELECTION,
    answers: answerJson(flowChange, 'The jobs are CANCELLED.', { changed: 1 }),
  },
  retryFlow: {
    summary: 'Queue the failed and skipped jobs of a flow again',
    description:
      'With `jobs` only these and what follows from them. They wait for their parents again, and those that have COMPLETED stay. Jobs whose record has expired cannot run again. The key needs `jobs:write` for each endpoint of the flow.',
    body: SELECTION,
    answers: answerJson(flowChange, 'The jobs are queued.', { changed: 1 }),
    refusals: [409],
  },
});
