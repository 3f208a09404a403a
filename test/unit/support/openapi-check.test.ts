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
      'has an undocumented status',
      () => check('POST /v2/e/run', 202, REFERENCE),
      'the status is not documented',
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
      'has an undocumented member',
      () => check('POST /v2/e/run', 200, { ...REFERENCE, more: 1 }),
      '"additionalProperty":"more"',
    ],
    [
      'has an additional member within a list',
      () => check('GET /v2/catalog/gpus', 200, { gpus: [{ more: 1 }] }),
      'body/gpus/0: must NOT have additional properties',
    ],
    [
      'has another media type',
      () => check('POST /v2/e/run', 200, REFERENCE, { 'content-type': 'text/html' }),
      'the media type is text/html',
    ],
    [
      'is an error without a problem body',
      () => check('GET /v2/pods/none', 404, { error: 'no' }),
      'documented: application/problem+json',
    ],
    [
      'is a problem with an unknown code',
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
      'has a body although none is documented',
      () => check('DELETE /v1/templates/t', 204, {}),
      'a body, although none is documented',
    ],
    [
      'has another status than 404 for an unknown path',
      () => check('GET /v2/e/nothing', 200, {}),
      'unknown operation: expected 404',
    ],
    [
      'has another status than 405 for an unknown method',
      () => check('PUT /v2/pods', 200, {}),
      'unknown operation: expected 405',
    ],
    [
      'refuses a method without Allow',
      () => check('PUT /v2/pods', 405, { ...PROBLEM, status: 405 }, PROBLEM_HEADERS),
      '405 without Allow',
    ],
  ])('fails if it %s', (_what, act, message) => {
    expect(act).toThrow(message);
  });

  it('is not checked for a worker, or an undocumented path', () => {
    check('GET /lb/e/whatever', 418, {});
    check('POST /v2/e/worker/take', 200, {});
    check('GET /runpod/v2/e/status/j', 200, {});
  });
});
