// The worker side of RunPod's protocol, for workers that speak that and nothing else. What such a worker
// is to the queue, and what it means by what it says, is in the files beside this one.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sleep } from '../../base/clock.ts';
import { LIMITS } from '../../wire/job.ts';
import { RUNPOD_BASE } from '../../wire/routes.ts';
import type { HttpBounds } from '../http/bounds.ts';
import { JSON_MEDIA_TYPE, joinAsArray, sendBytes, sendJson } from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { readUser } from '../http/resource-requests.ts';
import type { EndpointRoute } from '../routes/job-routes.ts';
import {
  readBatchSize,
  readNamedJobs,
  readPingMs,
  readTakeSigns,
  readWorkerCall,
  type WorkerCall,
} from './requests.ts';
import {
  type ResultSource,
  readResult,
  readYield,
  refuseHole,
  refuseSize,
  type WorkerResult,
  type WorkerWord,
} from './results.ts';
import type { HandedOut, Seat } from './seat.ts';
import { isPassing } from './seat-link.ts';
import { Seats, type SeatsOptions } from './seats.ts';

/** An output as large as may be, and what is around it. */
const RESULT_BODY_BYTES = LIMITS.outputBytes + 1_048_576;
/** These workers repeat a refused poll at once, and again: the refusal takes so long, ms. */
const REFUSAL_MS = 1_000;

export interface RunpodWorkerRoutesOptions extends SeatsOptions {
  bounds: Pick<HttpBounds, 'maxJsonDepth'>;
  /** Adds a step that comes before the platform stops to answer. */
  onStop: (step: () => Promise<void>) => void;
}

type Request = FastifyRequest<EndpointRoute>;

/** `app` has to give bodies as Buffers, of whatever media type, and to be of these routes alone. */
export function addRunpodWorkerRoutes(
  app: FastifyInstance,
  options: RunpodWorkerRoutesOptions,
): void {
  const seats = new Seats(options);
  options.onStop(() => seats.stopStreams());
  app.addHook('preClose', (done) => {
    seats.close();
    done();
  });
  app.addHook('onSend', async (request, reply) => {
    // Not while the platform stops: that would hold it up.
    const isRefused = reply.statusCode >= 400 && reply.statusCode !== 503;
    if (isRefused && request.method === 'GET')
      await sleep(options.clock, REFUSAL_MS, seats.closing);
  });
  addPolls(app, seats);
  addPing(app, seats, options);
  addReports(app, seats, options.bounds);
}

function addPolls(app: FastifyInstance, seats: Seats): void {
  const route = { config: { access: 'worker' } } as const;

  app.get<EndpointRoute>(place('job-take'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const { handed, seat } = await takeJobs({ seats, request, reply, verb: 'job-take' });
      const [pieces] = handed.map(encodeJob);
      return pieces && sendJobs(reply, seat, { handed, pieces });
    }),
  );

  app.get<EndpointRoute>(place('job-take-batch'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const { handed, seat } = await takeJobs({ seats, request, reply, verb: 'job-take-batch' });
      if (handed.length === 0) return undefined;
      const pieces = joinAsArray(handed.map((one) => Buffer.concat(encodeJob(one))));
      return sendJobs(reply, seat, { handed, pieces });
    }),
  );

  app.get<EndpointRoute>(place('job-stop'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const seat = useSeat(seats, request, readWorkerCall(request.raw.url ?? '', 'job-stop'));
      const names = await seat.waitForStops(abortWhenGone(reply.raw));
      if (names.length === 0) return undefined;
      reply.raw.once('finish', () => void seat.stopsTold(names).catch(() => {}));
      return sendJson(reply, { jobsToStop: names });
    }),
  );
}

/** Jobs that cannot be sent for want of memory go back, and the worker is told to come again. */
async function sendJobs(
  reply: FastifyReply,
  seat: Seat,
  { handed, pieces }: { handed: readonly HandedOut[]; pieces: Uint8Array[] },
): Promise<FastifyReply> {
  try {
    return await sendBytes(reply, { mediaType: JSON_MEDIA_TYPE, pieces });
  } catch (error) {
    await seat.giveBack(handed);
    throw error;
  }
}

/** Nothing: 204. Nothing for the moment: 429, which these workers take for a pause. */
async function answerPoll(
  reply: FastifyReply,
  poll: () => Promise<FastifyReply | undefined>,
): Promise<FastifyReply> {
  try {
    return (await poll()) ?? reply.code(204).send();
  } catch (error) {
    if (!isPassing(error)) throw error;
    return sendJson(reply.code(429), { error: 'no job can be leased now' });
  }
}

interface TakeCall {
  seats: Seats;
  request: Request;
  reply: FastifyReply;
  verb: 'job-take' | 'job-take-batch';
}

async function takeJobs({
  seats,
  request,
  reply,
  verb,
}: TakeCall): Promise<{ handed: HandedOut[]; seat: Seat }> {
  const call = readWorkerCall(request.raw.url ?? '', verb);
  const seat = useSeat(seats, request, call);
  const handed = await seat.take({
    max: verb === 'job-take' ? 1 : readBatchSize(call),
    ...readTakeSigns(call, request.headers),
    signal: abortWhenGone(reply.raw),
  });
  const giveBack = () => {
    if (!reply.raw.writableFinished) void seat.giveBack(handed);
  };
  if (reply.raw.destroyed) giveBack();
  else reply.raw.once('close', giveBack);
  return { handed, seat };
}

function encodeJob({ held, lease: { input, s3Config } }: HandedOut): Uint8Array[] {
  const files = s3Config === undefined ? '' : `,"s3Config":${s3Config}`;
  const head = Buffer.from(`{"id":${JSON.stringify(held.name)},"input":`);
  return [head, input, Buffer.from(`${files}}`)];
}

function addPing(app: FastifyInstance, seats: Seats, { log }: RunpodWorkerRoutesOptions): void {
  app.get<EndpointRoute>(
    place('ping'),
    { config: { access: 'worker' } },
    async (request, reply) => {
      const { endpoint } = request.params;
      const call = readWorkerCall(request.raw.url ?? '', 'ping');
      if (call.params.get('status') === 'unhealthy') {
        const { params, workerId } = call;
        const about = { endpoint, workerId, check: params.get('check') };
        log.warn({ ...about, reason: params.get('reason') }, 'worker reported itself unfit');
        return sendJson(reply, {});
      }
      const seat = useSeat(seats, request, call);
      await seat.open();
      const names = readNamedJobs(call);
      await seat.noteNamed(new Set(names), readPingMs(call));
      for (const name of names) await noteNamedElsewhere(seats, { endpoint, name, seat });
      return sendJson(reply, {});
    },
  );
}

/** What the worker runs under another name, or has no right to run any more. */
async function noteNamedElsewhere(
  seats: Seats,
  { endpoint, name, seat }: { endpoint: string; name: string; seat: Seat },
): Promise<void> {
  if (seat.held.get(name)) return;
  const located = await seats.locate(endpoint, name, seat.podId);
  if (!located) return seat.stop(name);
  located.seat.hear();
  located.held.noteKnown();
}

function addReports(
  app: FastifyInstance,
  seats: Seats,
  { maxJsonDepth }: Pick<HttpBounds, 'maxJsonDepth'>,
): void {
  const route = { bodyLimit: RESULT_BODY_BYTES, config: { access: 'worker' } } as const;
  const addReport = (verb: string, read: ReadReport) => {
    const takeTooLarge = async (error: unknown, request: Request) => {
      if (isTooLarge(error)) {
        const bytes = Number(request.headers['content-length'] ?? RESULT_BODY_BYTES + 1);
        await report(seats, request, verb, () => ({ word: refuseSize(bytes), isWorn: false }));
      }
      // The answer is that of every body that is too large.
      throw error;
    };
    app.post<EndpointRoute>(
      place(verb),
      { ...route, errorHandler: takeTooLarge },
      async (request, reply) => {
        const { body = Buffer.alloc(0) } = request;
        const source = { owner: readUser(request), maxJsonDepth };
        const answer = await report(seats, request, verb, (call) => read(body, source, call));
        return sendJson(reply, { answer });
      },
    );
  };
  addReport('job-stream', async (body, source) => ({
    word: await readYield(body, source),
    isWorn: false,
  }));
  addReport('job-done', (body, source, { params }) =>
    readResult(body, { ...source, isStream: params.get('isStream') === 'true' }),
  );
}

type ReadReport = (
  body: Buffer,
  source: Omit<ResultSource, 'isStream'>,
  call: WorkerCall,
) => Promise<WorkerResult>;

/** What comes late, or for nothing that was handed out, has no effect; it is no error either. */
async function report(
  seats: Seats,
  request: Request,
  verb: string,
  read: (call: WorkerCall) => Promise<WorkerResult> | WorkerResult,
): Promise<string> {
  const { endpoint } = request.params;
  const call = readWorkerCall(request.raw.url ?? '', verb);
  const byHeader = request.headers['x-request-id'];
  const name = call.jobName ?? (typeof byHeader === 'string' ? byHeader : '');
  const podId = request.holder?.podId ?? null;
  const located = await seats.locate(endpoint, name, podId);
  const { isWorn, word } = await read(call);
  const own = seats.find(endpoint, call.workerId) ?? located?.seat;
  own?.hear();
  if (isWorn) own?.wear();
  if (!located) return 'superseded';
  located.seat.hear();
  if (word.kind === 'chunks') await seats.hold(located);
  const isHole = located.held.isBroken && leavesChunks(word);
  const heard = isHole ? refuseHole({ isShown: await seats.isShown(endpoint, located) }) : word;
  return await located.seat.held.report(located.held, heard, { isWorn });
}

function leavesChunks(word: WorkerWord): boolean {
  return word.kind === 'completed' && word.output === undefined;
}

function useSeat(
  seats: Seats,
  { holder, params }: Request,
  { isShared, workerId }: WorkerCall,
): Seat {
  const seat = seats.admit(holder, params.endpoint, workerId);
  if (isShared) seat.share();
  return seat;
}

function isTooLarge(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'FST_ERR_CTP_BODY_TOO_LARGE';
}

/** With all that comes behind: these URLs are not what the router takes for one. */
function place(verb: string): string {
  return `${RUNPOD_BASE}/v2/:endpoint/${verb}/*`;
}
