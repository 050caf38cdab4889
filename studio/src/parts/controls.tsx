import { useEffect, useId, useState, type ReactNode } from "react";

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

/** A whole number. What is not one of those allowed stays in the field, with a sentence, and is not used. */
export function NumberField(props: { label: string; value: number; least: number; most: number; onChange(value: number): void }) {
  const { label, value, least, most, onChange } = props;
  const [refused, setRefused] = useState<string | null>(null);
  useEffect(() => setRefused(null), [value]);
  return (
    <Field label={label}>
      {(id) => (
        <>
          <input
            id={id}
            type="number"
            min={least}
            max={most}
            value={refused ?? value}
            aria-invalid={refused !== null}
            aria-describedby={refused === null ? undefined : `${id}-refused`}
            onChange={(event) => {
              const wanted = event.target.valueAsNumber;
              const isAllowed = Number.isInteger(wanted) && wanted >= least && wanted <= most;
              setRefused(isAllowed ? null : event.target.value);
              if (isAllowed) onChange(wanted);
            }}
          />
          {refused !== null && <span id={`${id}-refused`} role="alert" className="refused">a whole number from {least} to {most}; {value} is used</span>}
        </>
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
