// The event stream: which topics it has, and the form of its events.
import { z } from 'zod';
import { describeOperations } from '../operations/operation.ts';
import { EVENT_LIMITS, readTopic, TOPICS } from '../routes/event-topics.ts';
import { EVENT_ROUTES } from '../routes/routes.ts';

const SHOWN = {
  nothing: '',
  endpoint: ':<endpoint>',
  batch: ':<endpoint>/<batch>',
  job: ':<endpoint>/<job>',
  flow: ':<endpoint>/<flow>',
  pod: ':<pod>',
} as const;

/** `job:<endpoint>/<job>` and so on. */
const FORMS = Object.entries(TOPICS).map(([kind, { names }]) => `\`${kind}${SHOWN[names]}\``);

const TOPIC = Object.entries(TOPICS)
  .map(([kind, { names }]) => (names === 'nothing' ? kind : `${kind}:[^,]+`))
  .join('|');

const topics = z
  .string()
  .refine((text) => text.split(',').every((name) => readTopic(name)), 'must name topics')
  .meta({ pattern: `^(${TOPIC})(,(${TOPIC}))*$` });

const EXAMPLE =
  'event: snapshot\ndata: {"topic":"health:demo","data":{"jobs":{"completed":120,"failed":2,"inProgress":3,' +
  '"inQueue":5,"retried":1},"workers":{"idle":1,"running":3}}}\n\n';

export const EVENT_OPERATIONS = describeOperations('console', EVENT_ROUTES, {
  streamEvents: {
    summary: 'Watch endpoints, jobs and pods',
    description:
      `Server-sent events. Topics: ${FORMS.join(', ')}. Each topic needs the scope of the operation whose answer it ` +
      'carries. An event `snapshot` has `topic` and `data`; the first one of each topic follows at once, the next ones when ' +
      'the data changes. An event `problem` has `topic` and `problem`; with `final`, no event of the topic follows. A slow ' +
      'reader misses snapshots, but never the last one. The stream ends after ' +
      `${EVENT_LIMITS.lifetimeMs / 60_000} minutes, and when its key or session ends: connect again. A client that connects again ` +
      'gets a snapshot of each topic, so `Last-Event-ID` is not needed.',
    query: [
      {
        name: 'topics',
        schema: topics,
        presence: 'required',
        description: `up to ${EVENT_LIMITS.topics} topics, separated by commas`,
      },
    ],
    answers: {
      200: {
        description: 'Events until the client disconnects.',
        content: { 'text/event-stream': { schema: z.string(), example: EXAMPLE } },
      },
    },
    refusals: [429],
    isStream: true,
    endsCleanly: true,
  },
});
