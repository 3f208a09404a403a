// The worker side of RunPod's protocol, for workers that use no other. The other files of this
// folder represent such a worker in the queue and interpret its requests.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sleep } from '../../base/clock.ts';
import type { HttpBounds } from '../http/bounds.ts';
import { JSON_MEDIA_TYPE, joinAsArray, sendBytes, sendJson } from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import type { EndpointRoute } from '../routes/job-routes.ts';
import { addReportRoutes, placeVerb } from './report-routes.ts';
import {
  readBatchSize,
  readNamedJobs,
  readPingMs,
  readTakeSigns,
  readWorkerCall,
  type WorkerCall,
} from './requests.ts';
import type { HandedOut, Seat } from './seat.ts';
import { isPassing } from './seat-link.ts';
import { Seats, type SeatsOptions } from './seats.ts';

/** These workers repeat a rejected poll at once, so the rejection is delayed, ms. */
const REFUSAL_MS = 1_000;

export interface RunpodWorkerRoutesOptions extends SeatsOptions {
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
  const seats = new Seats(options);
  options.onStop(() => seats.stopStreams());
  app.addHook('preClose', (done) => {
    seats.close();
    done();
  });
  app.addHook('onSend', async (request, reply) => {
    // Not while the platform stops, which would be delayed.
    const isRefused = reply.statusCode >= 400 && reply.statusCode !== 503;
    if (isRefused && request.method === 'GET')
      await sleep(options.clock, REFUSAL_MS, seats.closing);
  });
  addPolls(app, seats);
  addPing(app, seats, options);
  addReportRoutes(app, seats, options.bounds);
}

function addPolls(app: FastifyInstance, seats: Seats): void {
  const route = { config: { access: 'worker', endsWithKey: true } } as const;

  app.get<EndpointRoute>(placeVerb('job-take'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const { handed, seat } = await takeJobs({ seats, request, reply, verb: 'job-take' });
      const [pieces] = handed.map(encodeJob);
      return pieces && sendJobs(reply, seat, { handed, pieces });
    }),
  );

  app.get<EndpointRoute>(placeVerb('job-take-batch'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const { handed, seat } = await takeJobs({ seats, request, reply, verb: 'job-take-batch' });
      if (handed.length === 0) return undefined;
      const pieces = joinAsArray(handed.map((one) => Buffer.concat(encodeJob(one))));
      return sendJobs(reply, seat, { handed, pieces });
    }),
  );

  app.get<EndpointRoute>(placeVerb('job-stop'), route, (request, reply) =>
    answerPoll(reply, async () => {
      const seat = useSeat(seats, request, readWorkerCall(request.raw.url ?? '', 'job-stop'));
      const names = await seat.waitForStops(abortWhenGone(reply.raw));
      if (names.length === 0) return undefined;
      reply.raw.once('finish', () => void seat.stopsTold(names).catch(() => {}));
      return sendJson(reply, { jobsToStop: names });
    }),
  );
}

/** Jobs that cannot be sent for lack of memory are released, and the worker is told to retry. */
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

/** No job: 204. No job at the moment: 429, which these workers treat as a pause. */
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
    placeVerb('ping'),
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

/** Attempts that the worker runs under another name, or may no longer run. */
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

function useSeat(
  seats: Seats,
  { holder, params }: Request,
  { isShared, workerId }: WorkerCall,
): Seat {
  const seat = seats.admit(holder, params.endpoint, workerId);
  if (isShared) seat.share();
  return seat;
}
