import { useId, type ReactNode } from "react";

export function Field({ label, hint, children }: { label: string; hint?: string; children: (id: string) => ReactNode }) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>
        {label}
        {hint && <span className="hint"> {hint}</span>}
      </label>
      {children(id)}
    </div>
  );
}

export function NumberField(props: { label: string; value: number; least: number; most: number; onChange(value: number): void }) {
  const { label, value, least, most, onChange } = props;
  return (
    <Field label={label}>
      {(id) => (
        <input
          id={id}
          type="number"
          min={least}
          max={most}
          value={value}
          onChange={(event) => {
            const wanted = event.target.valueAsNumber;
            if (Number.isInteger(wanted)) onChange(Math.min(most, Math.max(least, wanted)));
          }}
        />
      )}
    </Field>
  );
}

/** A choice of one among a few that are all shown. */
export function Segments<Value extends string>(props: {
  label: string;
  options: { value: NoInfer<Value>; text: string }[];
  value: Value;
  onChange(value: NoInfer<Value>): void;
}) {
  const name = useId();
  return (
    <fieldset className="segments">
      <legend>{props.label}</legend>
      {props.options.map((option) => (
        <label key={option.value} className={option.value === props.value ? "on" : ""}>
          <input
            type="radio"
            name={name}
            checked={option.value === props.value}
            onChange={() => props.onChange(option.value)}
          />
          {option.text}
        </label>
      ))}
    </fieldset>
  );
}

export function Check(props: { label: string; checked: boolean; onChange(checked: boolean): void }) {
  return (
    <label className="check">
      <input type="checkbox" checked={props.checked} onChange={(event) => props.onChange(event.target.checked)} />
      {props.label}
    </label>
  );
}
