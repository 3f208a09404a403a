// The part of the Prometheus Operator's resource ServiceMonitor that deploy/kubernetes uses.
const text = { type: 'string' };
const object = (properties: object, required: string[] = []) => ({
  type: 'object',
  properties,
  additionalProperties: false,
  ...(required.length > 0 && { required }),
});

const endpoint = object({
  port: text,
  path: text,
  interval: { ...text, pattern: '^[0-9]+(ms|s|m|h)$' },
  authorization: object({
    type: text,
    credentials: object({ name: text, key: text }, ['key']),
  }),
});

const spec = object(
  {
    selector: object({ matchLabels: { type: 'object', additionalProperties: text } }),
    endpoints: { type: 'array', items: endpoint },
  },
  ['endpoints', 'selector'],
);

export const SERVICE_MONITOR = object({ apiVersion: text, kind: text, metadata: {}, spec }, [
  'spec',
]);
