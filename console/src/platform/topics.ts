// The topics that pages watch, with the types of their data.

import type {
  BatchRecord,
  DecisionRecord,
  EndpointHealth,
  FlowRecord,
  PodRecord,
  VersionRecord,
} from '../../../src/client.ts';
import { composeTopic, type EndpointRecord, type JobDetails } from '../../../src/client.ts';
import type { EndpointOverview, Overview } from '../../../src/wire/resources/activity.ts';
import type { Live } from './polling.ts';

/** `of` is never set: it names the type of the data. */
interface TopicOf<T> {
  name: string;
  of?: T;
}

export const TOPICS = {
  overview: (): TopicOf<Overview> => ({ name: composeTopic('overview') }),
  endpoints: (): TopicOf<{ endpoints: EndpointRecord[] }> => ({ name: composeTopic('endpoints') }),
  endpoint: (id: string): TopicOf<EndpointRecord> => ({ name: composeTopic('endpoint', id) }),
  health: (id: string): TopicOf<EndpointHealth> => ({ name: composeTopic('health', id) }),
  activity: (id: string): TopicOf<EndpointOverview> => ({ name: composeTopic('activity', id) }),
  decisions: (id: string): TopicOf<{ decisions: DecisionRecord[] }> => ({
    name: composeTopic('decisions', id),
  }),
  versions: (id: string): TopicOf<{ versions: VersionRecord[] }> => ({
    name: composeTopic('versions', id),
  }),
  job: (endpoint: string, id: string): TopicOf<Omit<JobDetails, 'input'>> => ({
    name: composeTopic('job', endpoint, id),
  }),
  flow: (endpoint: string, id: string): TopicOf<FlowRecord> => ({
    name: composeTopic('flow', endpoint, id),
  }),
  batch: (endpoint: string, id: string): TopicOf<BatchRecord> => ({
    name: composeTopic('batch', endpoint, id),
  }),
  pods: (): TopicOf<{ pods: PodRecord[] }> => ({ name: composeTopic('pods') }),
  pod: (id: string): TopicOf<PodRecord> => ({ name: composeTopic('pod', id) }),
  podLog: (id: string): TopicOf<{ log: string }> => ({ name: composeTopic('pod-log', id) }),
} as const;

/** Data of a page that topics bring. */
export function liveFrom<Data extends readonly unknown[], T>(
  topics: { [At in keyof Data]: TopicOf<Data[At]> },
  read: (...data: Data) => T | Promise<T>,
): Live<T> {
  return {
    topics: topics.map(({ name }) => name),
    // As parseAnswer of the client: the platform sends what the topic is for.
    read: (...data: unknown[]) => read(...(data as readonly unknown[] as Data)),
  };
}
