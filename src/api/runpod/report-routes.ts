// Routes for the posts of RunPod's workers: chunks, progress and results. These workers repeat
// little, so a refused result is lost; a refused chunk leaves a hole in the stream, which these
// routes record.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { LIMITS } from '../../wire/job/job.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import { useBody } from '../body/body-reader.ts';
import { sendJson } from '../http/byte-reply.ts';
import { toProblem } from '../http/problem-reply.ts';
import { readUser } from '../http/requests.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import type { EndpointRoute } from '../routes/job-routes.ts';
import {
  type ResultSource,
  readResult,
  readYield,
  refuseHole,
  refuseSize,
  type WorkerPost,
  type WorkerReport,
} from './results.ts';
import type { RunPodSessions, SessionLease, WorkerCaller } from './runpod-sessions.ts';
import { isRunpodPython, readMaxAttempts, readWorkerCall, type WorkerCall } from './worker-urls.ts';

/** The largest output, and 1 MB for the other members of its body. */
const RESULT_BODY_BYTES = LIMITS.outputBytes + 1_048_576;

const NO_BYTES = Buffer.alloc(0);

type Request = FastifyRequest<EndpointRoute>;

export function addReportRoutes(
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
export function wildcardPath(verb: string): string {
  return `${RUNPOD_BASE}/v2/:endpoint/${verb}/*`;
}
