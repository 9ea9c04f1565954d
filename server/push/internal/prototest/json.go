package prototest

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Object returns the members of m that are set. binary returns the name and the value of a member
// that is bytes. Numbers are json.Number.
func Object(m protoreflect.Message, binary func(name string, p []byte) (string, any)) map[string]any {
	all := map[string]any{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsMap():
			values := map[string]any{}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				_, values[k.String()] = member(f.MapValue(), v, binary)
				return true
			})
			all[name] = values
		case f.IsList():
			var values []any
			for i := range v.List().Len() {
				_, one := member(f, v.List().Get(i), binary)
				values = append(values, one)
			}
			all[name] = values
		default:
			name, one := member(f, v, binary)
			all[name] = one
		}
		return true
	})
	return all
}

func member(f protoreflect.FieldDescriptor, v protoreflect.Value, binary func(string, []byte) (string, any)) (string,
	any) {
	name := string(f.Name())
	switch f.Kind() {
	case protoreflect.MessageKind:
		return name, Object(v.Message(), binary)
	case protoreflect.BytesKind:
		return binary(name, v.Bytes())
	case protoreflect.StringKind, protoreflect.BoolKind:
		return name, v.Interface()
	}
	return name, json.Number(fmt.Sprint(v.Interface()))
}

// Message returns the message that the JSON object describes. Members that are bytes get the JSON
// that is given. It returns an error if there is no such message.
func Message(d protoreflect.MessageDescriptor, object []byte) (*dynamicpb.Message, error) {
	m := dynamicpb.NewMessage(d)
	return m, fill(m, object)
}

func fill(m protoreflect.Message, object []byte) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(object, &given); err != nil {
		return err
	}
	if given == nil {
		return fmt.Errorf("%s is no object", object)
	}
	for name, text := range given {
		f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if f == nil {
			return fmt.Errorf("%s has no field %s", m.Descriptor().Name(), name)
		}
		if err := fillField(m, f, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func fillField(m protoreflect.Message, f protoreflect.FieldDescriptor, text []byte) error {
	switch {
	case f.IsMap():
		var values map[string]string
		if err := json.Unmarshal(text, &values); err != nil {
			return err
		}
		for key, value := range values {
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
		}
	case f.IsList():
		var values []json.RawMessage
		if err := json.Unmarshal(text, &values); err != nil {
			return err
		}
		list := m.Mutable(f).List()
		for _, one := range values {
			v, err := value(f, list.NewElement(), one)
			if err != nil {
				return err
			}
			list.Append(v)
		}
	default:
		v, err := value(f, m.NewField(f), text)
		if err != nil {
			return err
		}
		m.Set(f, v)
	}
	return nil
}

// value parses a value that is neither a list nor a map. zero is one of the field's type.
func value(f protoreflect.FieldDescriptor, zero protoreflect.Value, text []byte) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return zero, fill(zero.Message(), text)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(text), nil
	case protoreflect.StringKind:
		return parsed[string](text)
	case protoreflect.BoolKind:
		return parsed[bool](text)
	case protoreflect.Uint32Kind:
		return parsed[uint32](text)
	case protoreflect.Uint64Kind:
		return parsed[uint64](text)
	case protoreflect.Int32Kind:
		return parsed[int32](text)
	case protoreflect.Int64Kind:
		return parsed[int64](text)
	}
	panic("prototest: fields of kind " + f.Kind().String())
}

func parsed[T any](text []byte) (protoreflect.Value, error) {
	var v *T
	err := json.Unmarshal(text, &v)
	if err == nil && v == nil {
		err = fmt.Errorf("%s is no value", text)
	}
	if err != nil {
		return protoreflect.Value{}, err
	}
	return protoreflect.ValueOf(*v), nil
}
