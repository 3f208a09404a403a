// What RunPod's workers post: chunks, progress and results. They repeat little: a result that is refused is
// lost, and a chunk leaves a hole in its stream, which is noted here.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { LIMITS } from '../../wire/job.ts';
import { RUNPOD_BASE } from '../../wire/routes.ts';
import { sendJson } from '../http/byte-reply.ts';
import { toProblem } from '../http/problem-reply.ts';
import { readUser } from '../http/resource-requests.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import type { EndpointRoute } from '../routes/job-routes.ts';
import { readMaxAttempts, readWorkerCall, type WorkerCall } from './requests.ts';
import {
  type ResultSource,
  readResult,
  readYield,
  refuseHole,
  refuseSize,
  type WorkerResult,
  type WorkerWord,
} from './results.ts';
import type { RunPodSessions, SessionLease } from './sessions.ts';

/** An output as large as may be, and what is around it. */
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
    // Behind the checks of all routes: what fails from here on was sent by a worker.
    onRequest: (request: Request, _reply: FastifyReply, done: () => void) => {
      admitted.add(request.raw);
      done();
    },
  };
  const addReport = (verb: 'job-stream' | 'job-done', read: ReadReport) => {
    const noteFailure = async (error: unknown, request: Request) => {
      if (isTooLarge(error)) {
        const bytes = Number(request.headers['content-length'] ?? RESULT_BODY_BYTES + 1);
        await report(sessions, request, verb, () => ({ word: refuseSize(bytes), recycle: false }));
      } else if (verb === 'job-stream' && admitted.has(request.raw)) {
        await noteUntaken(sessions, request, error);
      }
      // The answer is that of every error.
      throw error;
    };
    app.post<EndpointRoute>(
      placeVerb(verb),
      { ...route, errorHandler: noteFailure },
      async (request, reply) => {
        const { body = Buffer.alloc(0) } = request;
        const source = { owner: readUser(request), maxJsonDepth };
        const answer = await report(sessions, request, verb, (call) => read(body, source, call));
        return sendJson(reply, { answer });
      },
    );
  };
  addReport('job-stream', async (body, source) => ({
    word: await readYield(body, source),
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
) => Promise<WorkerResult>;

/** What comes late, or for nothing that was handed out, has no effect; it is no error either. */
async function report(
  sessions: RunPodSessions,
  request: Request,
  verb: string,
  read: (call: WorkerCall) => Promise<WorkerResult> | WorkerResult,
): Promise<string> {
  const { endpoint } = request.params;
  const call = readWorkerCall(request.raw.url ?? '', verb);
  const located = await locate(sessions, request, call);
  const { recycle, word } = await read(call);
  const own = sessions.find(endpoint, call.workerId) ?? located?.session;
  own?.hear();
  if (recycle) own?.recycle();
  if (!located) return 'superseded';
  located.session.hear();
  if (word.kind === 'chunks') await sessions.hold(located);
  const isHole = located.held.isBroken && leavesChunks(word);
  const heard = isHole ? refuseHole({ isShown: await sessions.isShown(endpoint, located) }) : word;
  const answer = await located.session.held.report(located.held, heard, { recycle });
  if (word.kind === 'chunks') located.held.noteTaken(request.body ?? NO_BYTES);
  return answer;
}

/** A chunk that these workers cannot deliver they drop, and go on: at once, or after some tries. */
async function noteUntaken(
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

/** Undefined for an attempt that is over. */
function locate(
  sessions: RunPodSessions,
  { headers, holder, params }: Request,
  { jobName }: WorkerCall,
): Promise<SessionLease | undefined> {
  const byHeader = headers['x-request-id'];
  const name = jobName ?? (typeof byHeader === 'string' ? byHeader : '');
  return sessions.locate(params.endpoint, name, holder?.podId ?? null);
}

function leavesChunks(word: WorkerWord): boolean {
  return word.kind === 'completed' && word.output === undefined;
}

function isTooLarge(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'FST_ERR_CTP_BODY_TOO_LARGE';
}

/** With all that comes behind: these URLs are not what the router takes for one. */
export function placeVerb(verb: string): string {
  return `${RUNPOD_BASE}/v2/:endpoint/${verb}/*`;
}
