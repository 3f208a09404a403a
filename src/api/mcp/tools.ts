// The tools of the Model Context Protocol: one for each described operation, except those that are left out with a reason,
// and some that combine several. A tool calls operations; whoever serves the tools decides how a call reaches the platform.
import { z } from 'zod';
import type { Operation } from '../../wire/operations/operation.ts';
import { OPERATIONS } from '../../wire/operations/operations.ts';
import { describePathParameter, PARAMETER } from '../openapi/openapi.ts';
import { describeRequest, type JsonSchema } from '../openapi/schemas.ts';

/** One call of an operation. */
export interface ToolCall {
  method: Operation['method'];
  /** Path and query. */
  target: string;
  /** JSON. */
  body?: string;
  /** The rest of a longer answer is not read. */
  maxBytes: number;
}

export interface ToolAnswer {
  status: number;
  text: string;
  /** The answer was longer. */
  isCut: boolean;
}

export type CallOperation = (call: ToolCall) => Promise<ToolAnswer>;

export type Arguments = Readonly<Record<string, unknown>>;

export interface Tool {
  name: string;
  description: string;
  /** Of the arguments. */
  schema: z.ZodObject;
  /** Changes nothing. */
  isReading: boolean;
  annotations: { destructiveHint: boolean; idempotentHint: boolean };
  /** `given` passes the schema. */
  run: (given: Arguments, call: CallOperation) => Promise<ToolAnswer>;
}

/** Of one answer; agents read every byte. */
export const ANSWER_BYTES = 65_536;
/** Of a log, whose end is shown. */
const LOG_BYTES = 1_048_576;

/** Operations without a tool of their own, by reason. */
export const LEFT_OUT: Readonly<Record<string, readonly string[]>> = {
  'the answer is a stream': ['streamJob', 'streamEvents'],
  'a body is not JSON': [
    ...['runBatch', 'getBatchResults', 'uploadVersion', 'getVersionArchive', 'getMetrics'],
  ],
  'another tool has it': [
    'getJobLog',
    'getPodLog',
    'getHealth',
    'getHealthHead',
    'getReadinessHead',
  ],
  'an agent must not see secrets': [
    ...['createKey', 'rotateKey', 'createRegistry', 'updateRegistry'],
  ],
  'it is for browsers, programs or MCP itself': [
    ...['createSession', 'deleteSession', 'getOpenApi', 'callMcp'],
  ],
};

/** Groups without tools: other protocols. */
export const LEFT_OUT_TAGS: readonly string[] = ['openai', 'load balancing'];

/** Names that say more than the operation's ID. */
const NAMES: Readonly<Record<string, string>> = { listScalerDecisions: 'explain_scaling' };

/** Reads the start of an answer, and ends the rest. */
export async function readAnswer(
  status: number,
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<ToolAnswer> {
  const pieces: Uint8Array[] = [];
  let left = maxBytes;
  for await (const piece of source) {
    pieces.push(piece.subarray(0, left));
    left -= piece.length;
    if (left < 0) break;
  }
  return { status, text: Buffer.concat(pieces).toString(), isCut: left < 0 };
}

const OMITTED = new Set(Object.values(LEFT_OUT).flat());

function describeOperation(operation: Operation): Tool {
  const { access, body, description, id, method, path, query = [], summary } = operation;
  const isReading = method === 'GET' || access.endsWith(':read');
  const names = [...path.matchAll(PARAMETER)].map(([, name = '']) => name);
  const members = {
    ...Object.fromEntries(names.map((name) => [name, segment(describePathParameter(name))])),
    ...Object.fromEntries(query.map((each) => [each.name, each.schema.describe(each.description)])),
    ...(body && { body: body.presence === 'optional' ? body.schema.optional() : body.schema }),
  };
  return {
    name: NAMES[id] ?? toSnakeCase(id),
    description: description === undefined ? `${summary}.` : `${summary}. ${description}`,
    schema: z.strictObject(members),
    isReading,
    annotations: {
      destructiveHint: !isReading && !/^(create|run|preview|trigger)/.test(id),
      idempotentHint: isReading || method === 'PATCH' || method === 'DELETE',
    },
    run: (given, call) => call(composeCall(operation, given)),
  };
}

/** Of a path. Dots alone would change the path, and half a surrogate pair has no form in it. */
function segment(description: string) {
  return z
    .string()
    .regex(/^(?!\.{1,2}$)[^/\\]{1,200}$/, 'must have 1 to 200 characters, no slash')
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode')
    .describe(description);
}

function composeCall({ method, path, query = [] }: Operation, given: Arguments): ToolCall {
  const parameters = new URLSearchParams();
  for (const { name } of query) {
    for (const value of [given[name] ?? []].flat()) parameters.append(name, String(value));
  }
  const { body } = given;
  return {
    method,
    target:
      path.replaceAll(PARAMETER, (_match, name: string) =>
        encodeURIComponent(String(given[name])),
      ) + (parameters.size > 0 ? `?${parameters}` : ''),
    ...(body !== undefined && { body: JSON.stringify(body) }),
    maxBytes: ANSWER_BYTES,
  };
}

function toSnakeCase(id: string): string {
  return id.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

const READING = {
  isReading: true,
  annotations: { destructiveHint: false, idempotentHint: true },
} as const;

/** Jobs of an endpoint whose reasons one answer has. */
const EXPLAINED_JOBS = 5;

const waitSchema = z.strictObject({
  endpoint: segment(describePathParameter('endpoint')),
  job: segment(describePathParameter('job')).optional(),
});

/** The status of a queued job has its reason. Without a job: the newest queued jobs, and what holds the endpoint back. */
const explainWait: Tool = {
  ...READING,
  name: 'explain_wait',
  description:
    'Explain why a job waits: `waitReason` of its record has a code, a message, and times. Without `job`: the counts of the ' +
    `endpoint's jobs and workers, its pauses, and the records of its ${EXPLAINED_JOBS} newest queued jobs.`,
  schema: waitSchema,
  async run(given, call) {
    const { endpoint, job } = waitSchema.parse(given);
    const read = (tail: string) =>
      call({
        method: 'GET',
        target: `/v2/${encodeURIComponent(endpoint)}/${tail}`,
        maxBytes: ANSWER_BYTES,
      });
    const status = (id: string) => read(`status/${encodeURIComponent(id)}`);
    if (job !== undefined) return status(job);
    const parts = [
      await read('health'),
      await read('pauses'),
      await read(`jobs?status=IN_QUEUE&limit=${EXPLAINED_JOBS}`),
    ] as const;
    // A cut part is no JSON, so it is shown alone, with its mark.
    const alone = parts.find((part) => part.status >= BAD_REQUEST || part.isCut);
    if (alone) return alone;
    const [health, pauses, listed] = parts.map(({ text }) => JSON.parse(text));
    const { jobs } = queuedJobs.parse(listed);
    const records = [];
    for (const { id } of jobs) records.push(await status(id));
    // A job may have been deleted meanwhile.
    const found = records.filter((record) => record.status < BAD_REQUEST && !record.isCut);
    const text = JSON.stringify({
      health,
      pauses,
      queued: found.map((each) => JSON.parse(each.text)),
    });
    return { status: 200, text, isCut: false };
  },
};

const BAD_REQUEST = 400;

const queuedJobs = z.object({ jobs: z.array(z.object({ id: z.string() })) });

const tailSchema = z.strictObject({
  endpoint: segment(describePathParameter('endpoint')).optional().describe('of the job'),
  job: segment(describePathParameter('job')).optional(),
  pod: segment(describePathParameter('pod')).optional(),
  lines: z.int().min(1).max(1_000).default(100).describe('lines from the end, at most'),
});

const tailLog: Tool = {
  ...READING,
  name: 'tail_log',
  description:
    "Show the last lines of a log: with `endpoint` and `job`, what the job's handler logged, as lines of JSON; with `pod`, " +
    'what the pod or worker printed. The pods of an endpoint are in `list_pods`.',
  schema: tailSchema,
  async run(given, call) {
    const { endpoint, job, lines, pod } = tailSchema.parse(given);
    const target = findLog({ endpoint, job, pod });
    if (target === undefined) {
      return refuse('give `endpoint` and `job`, or `pod` alone');
    }
    const answer = await call({ method: 'GET', target, maxBytes: LOG_BYTES });
    if (answer.status >= BAD_REQUEST) return answer;
    const all = answer.text.replace(/\n$/, '').split('\n');
    const shown = Buffer.from(all.slice(-lines).join('\n'));
    // The end tells why a job failed; a line may be cut at its start.
    const isLong = shown.length > ANSWER_BYTES;
    return {
      ...answer,
      text: shown
        .subarray(isLong ? -ANSWER_BYTES : 0)
        .toString()
        .replace(/^\uFFFD+/, ''),
      isCut: answer.isCut || isLong,
    };
  },
};

function findLog({ endpoint, job, pod }: Partial<Record<string, string>>): string | undefined {
  if (pod !== undefined) {
    const isAlone = endpoint === undefined && job === undefined;
    return isAlone ? `/v2/pods/${encodeURIComponent(pod)}/logs` : undefined;
  }
  if (endpoint === undefined || job === undefined) return undefined;
  return `/v2/${encodeURIComponent(endpoint)}/logs/${encodeURIComponent(job)}`;
}

/** An answer for arguments that the platform has not seen, in the form of its problems. */
export function refuse(detail: string, errors: string[] = []): ToolAnswer {
  const problem = { title: 'Validation failed', status: 422, detail, code: 'invalid', errors };
  return { status: problem.status, text: JSON.stringify(problem), isCut: false };
}

export const TOOLS: readonly Tool[] = [
  explainWait,
  tailLog,
  ...OPERATIONS.filter(({ id, tag }) => !OMITTED.has(id) && !LEFT_OUT_TAGS.includes(tag)).map(
    describeOperation,
  ),
];

/** Descriptions of arguments need no names of schemas. */
export function describeArguments({ schema }: Tool): JsonSchema & { type: 'object' } {
  return { ...describeRequest(schema), type: 'object' };
}
