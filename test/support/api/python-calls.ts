// Requests as runpod-python sends them, over HTTP: the raw key, and a content type on whatever it sends.
import { type Platform, readJson } from './platform.ts';

const AGENT = 'RunPod-Python-SDK/1.12.0 (Linux 6.1.0; x86_64) Language/Python 3.11.2';

export const ask = (platform: Platform, path: string, init: RequestInit = {}) =>
  fetch(`${platform.url}/runpod/v2/demo/${path}`, {
    ...init,
    headers: {
      authorization: platform.worker,
      'content-type': 'application/json',
      'user-agent': AGENT,
      ...init.headers,
    },
  });

export const send = (platform: Platform, path: string, body: string) =>
  ask(platform, path, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/x-www-form-urlencoded', charset: 'utf-8' },
  });

/** Its polls, from the first chunk or result on, bear the id of the job that it posted of last. */
export const poll = (platform: Platform, path: string, postedLast?: string) =>
  ask(platform, path, { headers: postedLast === undefined ? {} : { 'x-request-id': postedLast } });

export const take = async (platform: Platform, query = '?&job_in_progress=0', worker = 'pod-1') =>
  readJson(await ask(platform, `job-take/${worker}${query}`));

export const ping = (platform: Platform, ids: string[], worker = 'pod-1') =>
  ask(platform, `ping/${worker}?job_id=${ids.join('%2C')}&runpod_version=1.12.0`);

/** The job's record on the service's own path. */
export const readRecord = async (platform: Platform, id: string) =>
  readJson(await platform.call(`/v2/demo/status/${id}`));
