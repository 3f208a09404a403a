// Judges whether the platform may give an answer to the fuzzer.
import { z } from 'zod';
import { ERROR_CODES } from '../../../src/wire/job/job.ts';
import { checkProblem } from '../answers.ts';
import { checkAnswer } from '../openapi-check.ts';
import type { FuzzRequest } from './framing.ts';
import { SECRET } from './furniture.ts';
import { judgeAcceptance } from './oracle.ts';
import type { Exchange, WireAnswer } from './wire.ts';
import type { Caller, FuzzWorld } from './world.ts';

/** Less than the platform's own time limits of 30 s: none of them may be what ends a request. */
const MAX_MS = 25_000;
const RUNPOD = /^[A-Z]+ \/runpod\//;
const RUNPOD_ERROR = /^\{"error":".+"\}$/s;
const OPENAI = / (\/runpod)?\/v2\/:endpoint\/openai\//;
const OPEN = / \/(healthz|readyz|openapi\.json)$/;
/** The front page and the console have nothing secret; a changed path can become one of them. */
const PUBLIC = /^(\*|(http:\/\/[^/]*)?\/(console(\/.*)?)?)(\?|$)/;
const PASSED_ON = /^[A-Z]+ \/lb\//;
/** The job of a request may have been cancelled by a purge, or have failed. */
const ENDS_OF_JOBS = new RegExp(`"code":"(${['cancelled', ...ERROR_CODES].join('|')})"`);
const openAiError = z.strictObject({
  error: z.strictObject({
    message: z.string().min(1),
    type: z.string().min(1),
    param: z.string().nullable(),
    code: z.string().min(1),
  }),
});

export interface Judged {
  request: FuzzRequest;
  caller: Caller;
  seen: Exchange;
}

/** Descriptions of the faults. */
export function judge(world: FuzzWorld, { caller, request, seen }: Judged): string[] {
  const { answers, end, ms } = seen;
  const faults: string[] = [];
  const [first] = answers;
  if (!first && !request.maySilence && !(request.mayWait && end === 'abandoned')) {
    faults.push(`no answer: ${end}`);
  }
  // The platform drains the rest of an invalid body.
  const isStalled = first?.status === 408 && request.bent.has('framing');
  const mayTakeLong = request.mayWait || request.hangsUp || isStalled;
  if (!mayTakeLong && end !== 'abandoned' && ms > MAX_MS) {
    faults.push(`the answer took ${Math.round(ms)} ms`);
  }
  for (const [index, answer] of answers.entries()) {
    faults.push(...judgeOne(answer, { request, method: request.methods[index] ?? 'GET' }));
  }
  if (first) faults.push(...judgeFirst(world, { request, caller, answer: first }));
  const [, probed] = answers;
  const isProbe = request.pieces.length === 2 && !request.maySilence;
  if (probed && isProbe && probed.status !== 200) faults.push(`the next request: ${probed.status}`);
  return faults;
}

interface One {
  request: FuzzRequest;
  method: string;
}

function judgeOne({ body, headers, status }: WireAnswer, { method, request }: One): string[] {
  const { route } = request;
  const mediaType = headers.get('content-type');
  const text = body.toString();
  if (status < 400) {
    const isOwnJson = mediaType?.startsWith('application/json') && !PASSED_ON.test(route);
    if (!isOwnJson || method === 'HEAD' || isParsed(text)) return [];
    return [`${status} with JSON that cannot be parsed: ${text.slice(0, 300)}`];
  }
  // The user's own worker may answer anything.
  if (PASSED_ON.test(route) && mediaType !== 'application/problem+json') return [];
  const isMaybeDown = PASSED_ON.test(route) && [502, 503, 504].includes(status);
  const isOfJob = OPENAI.test(route) && ENDS_OF_JOBS.test(text);
  const isFault = status >= 500 && !isMaybeDown && !isOfJob;
  const faults = isFault ? [`${status} ${text.slice(0, 300)}`] : [];
  if (method === 'HEAD') return body.length === 0 ? faults : [...faults, 'HEAD with a body'];
  if (OPENAI.test(route) && mediaType?.startsWith('application/json')) {
    // A changed path may lead elsewhere below /runpod/.
    const isElsewhere = request.bent.has('path') && RUNPOD_ERROR.test(text);
    const isOfOpenAi = isElsewhere || openAiError.safeParse(JSON.parse(text)).success;
    return isOfOpenAi ? faults : [...faults, `${status} ${text.slice(0, 300)}`];
  }
  if (RUNPOD.test(route) && mediaType?.startsWith('application/json')) {
    return RUNPOD_ERROR.test(text) ? faults : [...faults, `${status} ${text}`];
  }
  try {
    checkProblem({ status, mediaType, body: text }, status);
  } catch (error) {
    const shown = `${status} ${mediaType} ${text.slice(0, 300)}`;
    faults.push(`no problem body: ${shown}: ${error instanceof Error ? error.message : error}`);
  }
  return faults;
}

function isParsed(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}

interface First {
  request: FuzzRequest;
  caller: Caller;
  answer: WireAnswer;
}

function judgeFirst(world: FuzzWorld, { answer, caller, request }: First): string[] {
  const { bent, route, target } = request;
  const { headers, status } = answer;
  const body = answer.body.toString();
  const faults: string[] = [];
  if (route === 'no request') return faults;
  if (caller.name !== 'operator' && body.includes(SECRET)) faults.push("something of bob's");
  const isBobs = Object.values(world.bob.ids)
    .flat()
    .some((id) => target.includes(id));
  // The answer to OPTIONS depends only on the route.
  const isRead = request.method !== 'OPTIONS';
  if (isBobs && isRead && status < 400) faults.push(`${status} for what is bob's`);
  const isMade = status === 201 || (status === 200 && /\/run(sync)?$/.test(route));
  if (isMade && !PASSED_ON.test(route) && !bent.has('method')) {
    faults.push(...world.learn(request, { body, caller }));
  }
  if (status === 200 && route.endsWith('/worker/take') && !bent.has('method')) {
    const sent = request.pieces.filter((piece) => typeof piece !== 'number').join('');
    world.learnLeases(answer.body, /"workerId":"([^"]+)"/.exec(sent)?.[1] ?? '');
  }
  const isOpen = OPEN.test(route) || PUBLIC.test(target);
  if (caller.name === 'nobody' && status < 400 && !isOpen && request.method !== 'OPTIONS')
    faults.push(`${status} for nobody`);
  if (request.asked) {
    faults.push(...judgeAcceptance({ route, asked: request.asked, status, body }));
  }
  // The document does not say what a changed path or header means for an operation.
  if (bent.has('path') || bent.has('headers') || bent.has('framing')) {
    return faults;
  }
  try {
    checkAnswer({ method: request.method, path: target, status, headers, body });
  } catch (error) {
    faults.push(error instanceof Error ? error.message : String(error));
  }
  return faults;
}
