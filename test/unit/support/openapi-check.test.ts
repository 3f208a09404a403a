// The check that all answers of the e2e tests pass: what it takes for wrong.
import { describe, expect, it } from 'vitest';
import { checkAnswer, type SeenAnswer } from '../../support/openapi-check.ts';

const JSON_HEADERS = { 'content-type': 'application/json; charset=utf-8' };
const PROBLEM_HEADERS = { 'content-type': 'application/problem+json' };
const PROBLEM = { title: 'No', status: 404, detail: 'there is none', code: 'not_found' };

function check(
  call: string,
  status: number,
  body?: object,
  headers: Record<string, string> = JSON_HEADERS,
): void {
  const [method = '', path = ''] = call.split(' ');
  const text = body === undefined ? '' : JSON.stringify(body);
  const answer: SeenAnswer = { method, path, status, headers: new Headers(headers), body: text };
  checkAnswer(answer);
}

const REFERENCE = { id: 'j', status: 'IN_QUEUE' };

describe('an answer', () => {
  it('passes if it matches its documentation', () => {
    check('POST /v2/e/run', 200, REFERENCE);
    check('GET /v2/pods/none', 404, PROBLEM, PROBLEM_HEADERS);
    check('GET /v2/pods?limit=1', 200, { pods: [] });
    check('DELETE /v1/templates/t', 204, undefined, {});
  });

  it.each<[string, () => void, string]>([
    [
      'has a status that is not documented',
      () => check('POST /v2/e/run', 202, REFERENCE),
      'not among the documented ones',
    ],
    [
      'lacks a member',
      () => check('POST /v2/e/run', 200, { id: 'j' }),
      "must have required property 'status'",
    ],
    [
      'has a member of another type',
      () => check('POST /v2/e/run', 200, { ...REFERENCE, id: 1 }),
      'body/id: must be string',
    ],
    [
      'has a member that is not documented',
      () => check('POST /v2/e/run', 200, { ...REFERENCE, more: 1 }),
      '"additionalProperty":"more"',
    ],
    [
      'has a member too many within a list',
      () => check('GET /v2/catalog/gpus', 200, { gpus: [{ more: 1 }] }),
      'body/gpus/0: must NOT have additional properties',
    ],
    [
      'has another media type',
      () => check('POST /v2/e/run', 200, REFERENCE, { 'content-type': 'text/html' }),
      'the media type is text/html',
    ],
    [
      'is no problem where it is an error',
      () => check('GET /v2/pods/none', 404, { error: 'no' }),
      'documented: application/problem+json',
    ],
    [
      'is a problem of another code',
      () => check('GET /v2/pods/none', 404, { ...PROBLEM, code: 'odd' }, PROBLEM_HEADERS),
      'body/code: must be equal to one of the allowed values',
    ],
    [
      'lacks a header',
      () => check('GET /v2/pods/none', 401, { ...PROBLEM, status: 401 }, PROBLEM_HEADERS),
      'WWW-Authenticate is missing',
    ],
    [
      'has a header of another type',
      () =>
        check(...(['GET /v2/pods/none', 503, { ...PROBLEM, status: 503 }] as const), {
          ...PROBLEM_HEADERS,
          'retry-after': 'soon',
        }),
      'Retry-After: must be integer',
    ],
    [
      'has a body where there is to be none',
      () => check('DELETE /v1/templates/t', 204, {}),
      'there is a body and none is documented',
    ],
    [
      'comes from where there is nothing',
      () => check('GET /v2/e/nothing', 200, {}),
      'there is no such operation: has to be 404',
    ],
    [
      'comes from a method that a path does not have',
      () => check('PUT /v2/pods', 200, {}),
      'there is no such operation: has to be 405',
    ],
    [
      'refuses a method without saying which there are',
      () => check('PUT /v2/pods', 405, { ...PROBLEM, status: 405 }, PROBLEM_HEADERS),
      '405 without Allow',
    ],
  ])('that %s fails', (_what, act, message) => {
    expect(act).toThrow(message);
  });

  it('of a worker, or of an undocumented path, is not checked', () => {
    check('GET /lb/e/whatever', 418, {});
    check('POST /v2/e/worker/take', 200, {});
    check('GET /runpod/v2/e/status/j', 200, {});
  });
});
