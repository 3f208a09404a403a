// The forms of a network volume: a new one, and its name and size.
import type { NetworkVolumeRecord } from '../../../../src/client.ts';
import { Field } from '../../parts/forms/field.tsx';
import { FieldsForm, type FieldValues } from '../../parts/forms/fields-form.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';

interface FormProps {
  onDone: () => void;
  onBack: () => void;
}

const MAX_GB = 65_536;

export function CreationForm(props: FormProps) {
  const create = ({ number, text }: FieldValues) =>
    platform.networkVolumes.create({
      name: text('name'),
      size: number('size'),
      dataCenterId: text('dataCenterId') || null,
    });
  return (
    <FieldsForm label="New network volume" submit="Create" act={create} {...props}>
      <Field label="Name">
        {(ids) => <input {...ids} name="name" type="text" required maxLength={200} />}
      </Field>
      <Field label="Size, GB" help="It can grow later, and never shrink">
        {(ids) => <input {...ids} name="size" type="number" required min={1} max={MAX_GB} />}
      </Field>
      {may('endpoints:read') && <DataCenterChoice />}
    </FieldsForm>
  );
}

/** Data centers in which volumes can be created. */
function DataCenterChoice() {
  const { data = [] } = usePolled({
    key: 'data centers',
    load: async (signal) =>
      (await platform.catalog.dataCenters.page({ limit: 1_000, signal })).items,
    everyMs: null,
  });
  return (
    <Field label="Data center" help="Pods that mount the volume run there. It cannot be changed">
      {(ids) => (
        <select {...ids} name="dataCenterId">
          <option value="">Default</option>
          {data
            .filter(({ networkVolumes }) => networkVolumes)
            .map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
        </select>
      )}
    </Field>
  );
}

export function UpdateForm({ volume, ...props }: FormProps & { volume: NetworkVolumeRecord }) {
  const { id, name, size } = volume;
  const update = ({ number, text }: FieldValues) =>
    platform.networkVolumes.update(id, { name: text('name'), size: number('size') });
  return (
    <FieldsForm label={`Change the volume ${name}`} submit="Save" act={update} {...props}>
      <Field label="Name">
        {(ids) => (
          <input {...ids} name="name" type="text" required maxLength={200} defaultValue={name} />
        )}
      </Field>
      <Field label="Size, GB" help="At least the size now">
        {(ids) => (
          <input
            {...ids}
            {...{ name: 'size', type: 'number', required: true, max: MAX_GB }}
            min={size ?? 1}
            defaultValue={String(size ?? 1)}
          />
        )}
      </Field>
    </FieldsForm>
  );
}
