// The worker side of RunPod's protocol, for workers that use no other. The other files of this
// folder represent such a worker in the queue and interpret its requests.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sleep } from '../../base/clock.ts';
import { JSON_MEDIA_TYPE, joinAsArray, sendBytes, sendJson } from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import type { EndpointRoute } from '../routes/job-routes.ts';
import { addReportRoutes, wildcardPath } from './report-routes.ts';
import type { RunPodSession, TakenJob } from './runpod-session.ts';
import { RunPodSessions, type RunPodSessionsOptions } from './runpod-sessions.ts';
import { isTransientError } from './session-link.ts';
import {
  readBatchSize,
  readNamedJobs,
  readPingMs,
  readTakeSigns,
  readWorkerCall,
  type WorkerCall,
} from './worker-urls.ts';

/** These workers repeat a rejected poll at once, so the rejection is delayed, ms. */
const REFUSAL_MS = 1_000;

export interface RunpodWorkerRoutesOptions extends RunPodSessionsOptions {
  bounds: Pick<HttpBounds, 'maxJsonDepth'>;
  /** Adds a step that runs before the platform stops answering. */
  onStop: (step: () => Promise<void>) => void;
}

type Request = FastifyRequest<EndpointRoute>;

/** `app` must provide bodies as Buffers for every content type, and must have only these routes. */
export function addRunpodWorkerRoutes(
  app: FastifyInstance,
  options: RunpodWorkerRoutesOptions,
): void {
  const sessions = new RunPodSessions(options);
  options.onStop(() => sessions.stopStreams());
  app.addHook('preClose', (done) => {
    sessions.close();
    done();
  });
  app.addHook('onSend', async (request, reply) => {
    // Not while the platform stops, which would be delayed.
    const isRefused = reply.statusCode >= 400 && reply.statusCode !== 503;
    if (isRefused && request.method === 'GET')
      await sleep(options.clock, REFUSAL_MS, sessions.closing);
  });
  addPolls(app, sessions);
  addPing(app, sessions, options);
  addReportRoutes(app, sessions, options.bounds);
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

function encodeJob({ held, lease: { input, s3Config } }: TakenJob): Uint8Array[] {
  const files = s3Config === undefined ? '' : `,"s3Config":${s3Config}`;
  const head = Buffer.from(`{"id":${JSON.stringify(held.name)},"input":`);
  return [head, input, Buffer.from(`${files}}`)];
}

function addPing(
  app: FastifyInstance,
  sessions: RunPodSessions,
  { log }: RunpodWorkerRoutesOptions,
): void {
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
