// A line of a batch as OpenAI has it: a request to the endpoint's OpenAI API, whose answer becomes a line of the results.
import { z } from 'zod';
import type { BatchForm, BatchResult, ResultLine } from '../../queue/batches/batch-form.ts';
import { ReadRecord } from '../../queue/jobs.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import { ProblemError } from '../../wire/problem.ts';
import { check, leaveOut, parseJson, readMember } from '../body/body.ts';
import { JSON_MEDIA_TYPE } from '../http/byte-reply.ts';
import { DEFAULT_BOUNDS } from '../limits/bounds.ts';
import { RUNPOD_FORMAT } from '../runpod/runpod.ts';
import { composeAnswer, type OpenAiAnswer } from './answers.ts';

export const OPENAI_FORM = 'openai';

const { customIdCharacters } = BATCH_LIMITS;
const { maxJsonDepth } = DEFAULT_BOUNDS;

const MAX_URL = /^\/v1\/(?!files\b|batches\b|models\b)[A-Za-z0-9][\w.~/-]{0,199}$/;

const batchLine = z.looseObject({
  custom_id: z.string().min(1).max(customIdCharacters),
  method: z.literal('POST'),
  url: z.string().regex(MAX_URL, 'must be a path such as /v1/chat/completions'),
  body: z.looseObject({}),
});

export const openAiForm: BatchForm = {
  attachment: { format: RUNPOD_FORMAT, handlerData: null },
  names: { customId: 'custom_id', target: 'url' },
  readLine,
  writeResult,
};

async function readLine(line: Buffer, owner: string) {
  const bounds = { owner, maxJsonDepth };
  const body = await readMember(line, 'body', bounds);
  // The body itself is never parsed: its numbers stay as they are.
  const envelope = parseJson(body ? leaveOut(line, body) : line);
  const { custom_id: customId, url } = check(envelope, batchLine);
  if (!body) throw new Error('the schema accepted a line without a body');
  const stream = await readMember(body, 'stream', bounds);
  if (stream?.toString('latin1') === 'true') throw refuseStream();
  const head = Buffer.from(`{"openai_route":${JSON.stringify(url)},"openai_input":`);
  return { customId, target: url, input: Buffer.concat([head, body, CLOSE]) };
}

const CLOSE = Buffer.from('}');

function refuseStream(): ProblemError {
  const errors = ['body.stream: must not be true: a batch has whole answers'];
  return new ProblemError('invalid', `The line is invalid: ${errors[0]}`, { errors });
}

async function writeResult(
  { customId, end, jobId }: BatchResult,
  owner: string,
): Promise<ResultLine> {
  const head = `{"id":"batch_req_${jobId}","custom_id":${JSON.stringify(customId)},"response":`;
  if (!(end instanceof ReadRecord)) {
    const text = `${head}null,"error":${JSON.stringify(end)}}`;
    return { isFailed: true, pieces: [Buffer.from(text)] };
  }
  const answer = await composeAnswer(end, owner);
  const { status } = answer;
  const opening = `${head}{"status_code":${status},"request_id":"${jobId}","body":`;
  const pieces = [Buffer.from(opening), ...toJson(answer), Buffer.from('},"error":null}')];
  return { isFailed: status >= 400, pieces };
}

function toJson({ mediaType, pieces }: OpenAiAnswer): readonly Uint8Array[] {
  if (mediaType === JSON_MEDIA_TYPE) return pieces;
  return [Buffer.from(JSON.stringify(Buffer.concat(pieces).toString('utf8')))];
}
