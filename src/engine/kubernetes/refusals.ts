// Interprets error answers of the Kubernetes API to a create or start: whether a retry can help. Pure.
import { EngineError } from '../engine.ts';
import type { KubernetesError } from './api-client.ts';

const BAD_REQUEST = 400;
const TOO_LARGE = 413;
const INVALID = 422;
const FORBIDDEN = 403;
/** A quota of the namespace may allow it later; a rule of the namespace changes only with the operator. */
const QUOTA = /exceeded quota/i;
const POLICY = /violates PodSecurity|denied the request|podsecurity/i;

export function judgeRefusal(answer: KubernetesError): EngineError {
  const { message, status } = answer;
  const isPermanent =
    [BAD_REQUEST, TOO_LARGE, INVALID].includes(status) ||
    (status === FORBIDDEN && POLICY.test(message) && !QUOTA.test(message));
  return new EngineError(isPermanent ? 'refused' : 'unavailable', message, { cause: answer });
}
