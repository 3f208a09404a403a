// The worker side of RunPod's protocol, for workers that use no other: polls, pings, and posts of chunks, progress and
// results. These workers repeat little, so a refused result is lost, and a refused chunk leaves a hole in the stream,
// which these routes record. runpod-sessions.ts represents such a worker in the queue.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sleep } from '../../base/clock.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { AdapterParts } from '../adapter.ts';
import { useBody } from '../body/body-reader.ts';
import { JSON_MEDIA_TYPE, joinAsArray, sendBytes, sendJson } from '../http/byte-reply.ts';
import { abortWhenGone, toProblem } from '../http/problem-reply.ts';
import { readUser } from '../http/requests.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import type { EndpointRoute } from '../routes/job-routes.ts';
import type { RunPodSession, TakenJob } from './runpod-session.ts';
import { RunPodSessions, type SessionLease, type WorkerCaller } from './runpod-sessions.ts';
import { isTransientError } from './session-link.ts';
import {
  isRunpodPython,
  type ResultSource,
  readBatchSize,
  readMaxAttempts,
  readNamedJobs,
  readPingMs,
  readResult,
  readTakeSigns,
  readWorkerCall,
  readYield,
  refuseHole,
  refuseSize,
  type WorkerCall,
  type WorkerPost,
  type WorkerReport,
} from './worker-requests.ts';

/** These workers repeat a rejected poll at once, so the rejection is delayed, ms. */
const REFUSAL_MS = 1_000;

type Request = FastifyRequest<EndpointRoute>;

/** `app` must provide bodies as Buffers for every content type, and must have only these routes. */
export function addRunpodWorkerRoutes(app: FastifyInstance, parts: AdapterParts): void {
  const sessions = new RunPodSessions(parts);
  parts.onStop(() => sessions.stopStreams());
  app.addHook('preClose', (done) => {
    sessions.close();
    done();
  });
  app.addHook('onSend', async (request, reply) => {
    // Not while the platform stops, which would be delayed.
    const isRefused = reply.statusCode >= 400 && reply.statusCode !== 503;
    if (isRefused && request.method === 'GET')
      await sleep(parts.clock, REFUSAL_MS, sessions.closing);
  });
  addPolls(app, sessions);
  addPing(app, sessions, parts);
  addReportRoutes(app, sessions, parts.bounds);
}

function addPolls(app: FastifyInstance, sessions: RunPodSessions): void {
  const route = { config: { access: 'worker', endsWithKey: true } } as const;

  app.get<EndpointRoute>(wildcardPath('job-take'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const { taken, session } = await takeJobs({ sessions, request, reply, verb: 'job-take' });
      const [pieces] = taken.map(encodeJob);
      return pieces && sendJobs(reply, session, { taken, pieces });
    }),
  );

  app.get<EndpointRoute>(wildcardPath('job-take-batch'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const { taken, session } = await takeJobs({
        sessions,
        request,
        reply,
        verb: 'job-take-batch',
      });
      if (taken.length === 0) return undefined;
      const pieces = joinAsArray(taken.map((one) => Buffer.concat(encodeJob(one))));
      return sendJobs(reply, session, { taken, pieces });
    }),
  );

  app.get<EndpointRoute>(wildcardPath('job-stop'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const session = useSession(
        sessions,
        request,
        readWorkerCall(request.raw.url ?? '', 'job-stop'),
      );
      const names = await session.waitForStops(abortWhenGone(reply.raw));
      if (names.length === 0) return undefined;
      reply.raw.once('finish', () => void session.noteStopsSent(names).catch(() => {}));
      return sendJson(reply, { jobsToStop: names });
    }),
  );
}

/**
 * Jobs that cannot be sent for lack of memory are released, and the worker gets an answer that
 * makes it retry.
 */
async function sendJobs(
  reply: FastifyReply,
  session: RunPodSession,
  { taken, pieces }: { taken: readonly TakenJob[]; pieces: Uint8Array[] },
): Promise<FastifyReply> {
  try {
    return await sendBytes(reply, { mediaType: JSON_MEDIA_TYPE, pieces });
  } catch (error) {
    await session.release(taken);
    throw error;
  }
}

/** No job: 204. No job at the moment: 429, which these workers treat as a pause. */
async function answerPoll(
  reply: FastifyReply,
  poll: () => Promise<FastifyReply | undefined>,
): Promise<FastifyReply> {
  try {
    return (await poll()) ?? reply.code(204).send();
  } catch (error) {
    if (!isTransientError(error)) throw error;
    return sendJson(reply.code(429), { error: 'no job can be leased now' });
  }
}

interface TakeCall {
  sessions: RunPodSessions;
  request: Request;
  reply: FastifyReply;
  verb: 'job-take' | 'job-take-batch';
}

async function takeJobs({
  sessions,
  request,
  reply,
  verb,
}: TakeCall): Promise<{ taken: TakenJob[]; session: RunPodSession }> {
  const call = readWorkerCall(request.raw.url ?? '', verb);
  const session = useSession(sessions, request, call);
  const taken = await session.take({
    max: verb === 'job-take' ? 1 : readBatchSize(call),
    ...readTakeSigns(call, request.headers),
    signal: abortWhenGone(reply.raw),
  });
  const release = () => {
    if (!reply.raw.writableFinished) void session.release(taken);
  };
  if (reply.raw.destroyed) release();
  else reply.raw.once('close', release);
  return { taken, session };
}

function encodeJob({
  held,
  lease: { input: given, memoBytes = 0, s3Config },
}: TakenJob): Uint8Array[] {
  // A worker of RunPod remembers nothing of earlier attempts.
  const input = given.subarray(0, given.length - memoBytes);
  const files = s3Config === undefined ? '' : `,"s3Config":${s3Config}`;
  const head = Buffer.from(`{"id":${JSON.stringify(held.name)},"input":`);
  return [head, input, Buffer.from(`${files}}`)];
}

function addPing(app: FastifyInstance, sessions: RunPodSessions, { log }: AdapterParts): void {
  app.get<EndpointRoute>(
    wildcardPath('ping'),
    { config: { access: 'worker' } },
    async (request, reply) => {
      const call = readWorkerCall(request.raw.url ?? '', 'ping');
      if (call.params.get('status') === 'unhealthy') {
        const { params, workerId } = call;
        const about = { endpoint: request.params.endpoint, workerId, check: params.get('check') };
        log.warn({ ...about, reason: params.get('reason') }, 'worker reported itself unfit');
        return sendJson(reply, {});
      }
      const session = useSession(sessions, request, call);
      await session.open();
      const names = new Set(readNamedJobs(call));
      await session.noteNamed(names, readPingMs(call));
      for (const other of await findOthers(sessions, session, names)) {
        other.noteRequest();
        await other.noteNamed(names, readPingMs(call));
      }
      return sendJson(reply, {});
    },
  );
}

/**
 * The sessions of shared IDs under which a worker has taken jobs that it names. The worker stops the other jobs
 * that it names, because they are no longer its own.
 */
async function findOthers(
  sessions: RunPodSessions,
  session: RunPodSession,
  names: ReadonlySet<string>,
): Promise<Set<RunPodSession>> {
  const others = new Set<RunPodSession>();
  for (const name of names) {
    if (session.held.get(name)) continue;
    const located = await sessions.locate(session, name);
    if (located) others.add(located.session);
    else session.stop(name);
  }
  return others;
}

function useSession(
  sessions: RunPodSessions,
  { holder, params }: Request,
  { workerId }: WorkerCall,
): RunPodSession {
  return sessions.admit(holder, params.endpoint, workerId);
}

/** The largest output, and 1 MB for the other members of its body. */
const RESULT_BODY_BYTES = LIMITS.outputBytes + 1_048_576;

const NO_BYTES = Buffer.alloc(0);

function addReportRoutes(
  app: FastifyInstance,
  sessions: RunPodSessions,
  { maxJsonDepth }: Pick<HttpBounds, 'maxJsonDepth'>,
): void {
  const config = { access: 'worker', isPatient: true } as const;
  const admitted = new WeakSet<Request['raw']>();
  const route = {
    bodyLimit: RESULT_BODY_BYTES,
    config,
    // Runs after the checks of all routes: any later failure concerns a request of a worker.
    onRequest: (request: Request, _reply: FastifyReply, done: () => void) => {
      admitted.add(request.raw);
      done();
    },
  };
  const addReport = (verb: 'job-stream' | 'job-done', read: ReadReport) => {
    const noteFailure = async (error: unknown, request: Request) => {
      if (isTooLarge(error)) {
        const bytes = Number(request.headers['content-length'] ?? RESULT_BODY_BYTES + 1);
        await handlePost(sessions, request, verb, () => ({
          report: refuseSize(bytes),
          recycle: false,
        }));
      } else if (verb === 'job-stream' && admitted.has(request.raw)) {
        await noteFailedPost(sessions, request, error);
      }
      // The error handler of all routes answers.
      throw error;
    };
    app.post<EndpointRoute>(
      wildcardPath(verb),
      { ...route, errorHandler: noteFailure },
      async (request, reply) => {
        const { body = Buffer.alloc(0) } = request;
        const source = { owner: readUser(request), maxJsonDepth };
        const answer = await useBody(request, () =>
          handlePost(sessions, request, verb, (call) => read(body, source, call)),
        );
        return sendJson(reply, { answer });
      },
    );
  };
  addReport('job-stream', async (body, source) => ({
    report: await readYield(body, source),
    recycle: false,
  }));
  addReport('job-done', (body, source, { params }) =>
    readResult(body, { ...source, isStream: params.get('isStream') === 'true' }),
  );
}

type ReadReport = (
  body: Buffer,
  source: Omit<ResultSource, 'isStream'>,
  call: WorkerCall,
) => Promise<WorkerPost>;

/** A late post, or one for an unknown attempt, has no effect and is not an error. */
async function handlePost(
  sessions: RunPodSessions,
  request: Request,
  verb: string,
  read: (call: WorkerCall) => Promise<WorkerPost> | WorkerPost,
): Promise<string> {
  const { endpoint } = request.params;
  const call = readWorkerCall(request.raw.url ?? '', verb);
  const located = await locate(sessions, request, call);
  const { recycle, report } = await read(call);
  const own = sessions.findOwn(describeCaller(request, call)) ?? located?.session;
  own?.noteRequest();
  if (recycle) own?.recycle();
  if (!located) return 'superseded';
  located.session.noteRequest();
  if (report.kind === 'chunks') await sessions.hold(located);
  const isHole = located.held.isBroken && leavesChunks(report);
  const applied = isHole
    ? refuseHole({ isShown: await sessions.isShown(endpoint, located) })
    : report;
  // Other clients may send several values as one chunk.
  if (isRunpodPython(request.headers)) await noteMissingChunks(located, applied);
  const answer = await located.session.held.report(located.held, applied, { recycle });
  if (report.kind === 'chunks') located.held.noteAccepted(request.body ?? NO_BYTES);
  return answer;
}

/** Notes in the log of the job how many values the stream lacks: these workers drop a chunk that does not arrive. */
async function noteMissingChunks(
  { held, session }: SessionLease,
  report: WorkerReport,
): Promise<void> {
  if (report.kind !== 'completed' || report.yields === undefined) return;
  const missing = report.yields - held.yields;
  if (missing <= 0) return;
  const text = `The stream lacks ${missing} of ${report.yields} chunks, which did not arrive. The output has all.`;
  await session.held.report(held, { kind: 'warning', text });
}

/** These workers drop a chunk that they cannot deliver, at once or after some attempts, and continue. */
async function noteFailedPost(
  sessions: RunPodSessions,
  request: Request,
  error: unknown,
): Promise<void> {
  const call = readWorkerCall(request.raw.url ?? '', 'job-stream');
  const located = await locate(sessions, request, call).catch(() => undefined);
  const status = toProblem(error)?.status ?? 500;
  if (!request.body || status < 500) located?.held.noteLost();
  else located?.held.noteRefused(request.body, readMaxAttempts(request.headers));
}

/** Returns undefined if the attempt has ended, or belongs to another worker. */
function locate(
  sessions: RunPodSessions,
  request: Request,
  call: WorkerCall,
): Promise<SessionLease | undefined> {
  const byHeader = request.headers['x-request-id'];
  const name = call.jobName ?? (typeof byHeader === 'string' ? byHeader : '');
  return sessions.locate(describeCaller(request, call), name);
}

function describeCaller({ holder, params }: Request, { workerId }: WorkerCall): WorkerCaller {
  return { endpointId: params.endpoint, workerId, podId: holder?.podId ?? null };
}

function leavesChunks(report: WorkerReport): boolean {
  return report.kind === 'completed' && report.output === undefined;
}

function isTooLarge(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'FST_ERR_CTP_BODY_TOO_LARGE';
}

/** A wildcard route: these workers write their URLs in forms that the router cannot parse. */
function wildcardPath(verb: string): string {
  return `${RUNPOD_BASE}/v2/:endpoint/${verb}/*`;
}
