// A field that chooses one endpoint, or none.
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { Field } from './field.tsx';

/** The value of the field `endpoint` is an ID, or empty. `isTyped`: a text field, for endpoints that this user cannot list. */
export function EndpointField({ isTyped, none }: { none: string; isTyped?: boolean }) {
  const mayList = may('endpoints:read') && !isTyped;
  const { data = [] } = usePolled({
    key: 'endpoints to choose from',
    load: async (signal) =>
      mayList ? (await platform.endpoints.page({ limit: 1_000, signal })).items : [],
    everyMs: null,
  });
  if (!mayList) {
    return (
      <Field label="Endpoint" help={`ID or name; empty: ${none.toLowerCase()}`}>
        {(ids) => <input {...ids} name="endpoint" type="text" />}
      </Field>
    );
  }
  return (
    <Field label="Endpoint">
      {(ids) => (
        <select {...ids} name="endpoint">
          <option value="">{none}</option>
          {data.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
