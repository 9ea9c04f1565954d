// Package prototest compiles definitions of Protobuf messages for tests, so that tests can compare
// the codecs of this server with another implementation of Protobuf.
package prototest

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

var scalars = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL, "uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32,
	"uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64, "int32": descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"int64": descriptorpb.FieldDescriptorProto_TYPE_INT64,
}

// Messages compiles definitions, which have one message to a line that may be continued: the name,
// and each field with its number and type. A "*" marks a repeated field, a "%" a map from strings.
func Messages(t testing.TB, definitions string) protoreflect.MessageDescriptors {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("definitions.proto"), Syntax: proto.String("proto3"),
		Package: proto.String("c")}
	for line := range strings.Lines(strings.ReplaceAll(definitions[1:], "\n  ", " ")) {
		words := strings.Fields(line)
		m := &descriptorpb.DescriptorProto{Name: proto.String(words[0])}
		for _, word := range words[1:] {
			name, rest, _ := strings.Cut(word, "=")
			number, kind, _ := strings.Cut(rest, ":")
			m.Field = append(m.Field, fieldOf(m, name, number, kind))
		}
		file.MessageType = append(file.MessageType, m)
	}
	compiled, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Messages()
}

func fieldOf(in *descriptorpb.DescriptorProto, name, number, kind string) *descriptorpb.FieldDescriptorProto {
	n, _ := strconv.Atoi(number)
	f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: proto.Int32(int32(n)),
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	if value, ok := strings.CutPrefix(kind, "%"); ok {
		entry := &descriptorpb.DescriptorProto{Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
			Name: proto.String(strings.ToUpper(name[:1]) + name[1:] + "Entry")}
		entry.Field = append(entry.Field, fieldOf(entry, "key", "1", "string"), fieldOf(entry, "value", "2", value))
		in.NestedType = append(in.NestedType, entry)
		kind = "*" + in.GetName() + "." + entry.GetName()
	}
	if one, ok := strings.CutPrefix(kind, "*"); ok {
		f.Label, kind = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), one
	}
	if scalar, ok := scalars[kind]; ok {
		f.Type = scalar.Enum()
		return f
	}
	f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".c."+kind)
	return f
}
