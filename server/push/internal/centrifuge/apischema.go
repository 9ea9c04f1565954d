package centrifuge

import (
	"strconv"
	"strings"
	"sync"
)

// APIDefinitions are the messages of Centrifugo's gRPC API that the server reads and writes. They
// are from internal/apiproto/api.proto of version 6 (https://github.com/centrifugal/centrifugo).
// Each line is a message: its name, and its fields with number and type. Lines that begin with two
// spaces continue the line before. A "*" marks a repeated field, a "%" a map from strings. Unserved
// stands for messages whose fields are skipped. UnservedRequest and UnservedResponse are those of
// methods that the server does not serve.
const APIDefinitions = `
PublishRequest channel=1:string data=2:bytes b64data=3:string skip_history=4:bool tags=5:%string
  idempotency_key=6:string delta=7:bool version=8:uint64 version_epoch=9:string
PublishResponse error=1:Error result=2:PublishResult
PublishResult offset=1:uint64 epoch=2:string
BroadcastRequest channels=1:*string data=2:bytes b64data=3:string skip_history=4:bool tags=5:%string
  idempotency_key=6:string delta=7:bool version=8:uint64 version_epoch=9:string
BroadcastResponse error=1:Error result=2:BroadcastResult
BroadcastResult responses=1:*PublishResponse
SubscribeRequest channel=1:string user=2:string expire_at=3:int64 info=4:bytes b64info=5:string client=6:string
  data=7:bytes b64data=8:string recover_since=9:StreamPosition override=10:SubscribeOptionOverride session=11:string
  label_filter=12:FilterNode all_users=13:bool
SubscribeResponse error=1:Error result=2:Empty
SubscribeOptionOverride presence=1:BoolValue join_leave=2:BoolValue force_recovery=3:BoolValue
  force_positioning=4:BoolValue force_push_join_leave=5:BoolValue
UnsubscribeRequest channel=1:string user=2:string client=3:string session=4:string label_filter=5:FilterNode
  all_users=6:bool
UnsubscribeResponse error=1:Error result=2:Empty
DisconnectRequest user=1:string disconnect=2:Disconnect client=3:string whitelist=4:*string session=5:string
  label_filter=6:FilterNode all_users=7:bool
DisconnectResponse error=1:Error result=2:Empty
RefreshRequest user=1:string client=2:string expired=3:bool expire_at=4:int64 info=5:bytes session=6:string
  label_filter=7:FilterNode all_users=8:bool
RefreshResponse error=1:Error result=2:Empty
PresenceRequest channel=1:string
PresenceResponse error=1:Error result=2:PresenceResult
PresenceResult presence=1:%ClientInfo
PresenceStatsRequest channel=1:string
PresenceStatsResponse error=1:Error result=2:PresenceStatsResult
PresenceStatsResult num_clients=1:uint32 num_users=2:uint32
HistoryRequest channel=1:string limit=2:int32 since=3:StreamPosition reverse=4:bool
HistoryResponse error=1:Error result=2:HistoryResult
HistoryResult publications=1:*Publication epoch=2:string offset=3:uint64
HistoryRemoveRequest channel=1:string
HistoryRemoveResponse error=1:Error result=2:Empty
InfoRequest
InfoResponse error=1:Error result=2:InfoResult
InfoResult nodes=1:*NodeResult
NodeResult uid=1:string name=2:string version=3:string num_clients=4:uint32 num_users=5:uint32
  num_channels=6:uint32 uptime=7:uint32 num_subs=10:uint32
ChannelsRequest pattern=1:string
ChannelsResponse error=1:Error result=2:ChannelsResult
ChannelsResult channels=1:%ChannelInfo
ChannelInfo num_clients=1:uint32
RPCRequest method=1:string params=2:bytes
RPCResponse error=1:Error
ConnectionsRequest user=1:string expression=2:string label_filter=3:FilterNode
ConnectionsResponse error=1:Error result=2:ConnectionsResult
ConnectionsResult connections=1:%ConnectionInfo
ConnectionInfo transport=3:string protocol=4:string user=8:string state=9:ConnectionState
ConnectionState channels=1:%Empty
BatchRequest commands=1:*Command parallel=2:bool
BatchResponse replies=1:*Reply
Command publish=4:PublishRequest broadcast=5:BroadcastRequest subscribe=6:SubscribeRequest
  unsubscribe=7:UnsubscribeRequest disconnect=8:DisconnectRequest presence=9:PresenceRequest
  presence_stats=10:PresenceStatsRequest history=11:HistoryRequest history_remove=12:HistoryRemoveRequest
  info=13:InfoRequest rpc=14:RPCRequest refresh=15:RefreshRequest channels=16:ChannelsRequest
  connections=17:ConnectionsRequest update_user_status=18:Unserved get_user_status=19:Unserved
  delete_user_status=20:Unserved block_user=21:Unserved unblock_user=22:Unserved revoke_token=23:Unserved
  invalidate_user_tokens=24:Unserved device_register=25:Unserved device_update=26:Unserved device_remove=27:Unserved
  device_list=28:Unserved device_topic_list=29:Unserved device_topic_update=30:Unserved user_topic_list=31:Unserved
  user_topic_update=32:Unserved send_push_notification=33:Unserved update_push_status=34:Unserved
  cancel_push=35:Unserved map_publish=36:Unserved map_remove=37:Unserved map_read_state=38:Unserved
  map_read_stream=39:Unserved map_stats=40:Unserved map_clear=41:Unserved shared_poll_publish=42:Unserved
Reply error=2:Error publish=4:PublishResult broadcast=5:BroadcastResult subscribe=6:Empty unsubscribe=7:Empty
  disconnect=8:Empty presence=9:PresenceResult presence_stats=10:PresenceStatsResult history=11:HistoryResult
  history_remove=12:Empty info=13:InfoResult refresh=15:Empty channels=16:ChannelsResult
  connections=17:ConnectionsResult
Error code=1:uint32 message=2:string
Disconnect code=1:uint32 reason=2:string
StreamPosition offset=1:uint64 epoch=2:string
Publication data=2:bytes info=3:ClientInfo offset=4:uint64 tags=5:%string
ClientInfo user=1:string client=2:string conn_info=3:bytes chan_info=4:bytes
FilterNode op=1:string key=2:string cmp=3:string val=4:string vals=5:*string nodes=6:*FilterNode
BoolValue value=1:bool
Empty
Unserved
UnservedRequest
UnservedResponse error=1:Error
`

// An apiMessage is a message of the definitions.
type apiMessage struct{ fields []apiField }

type apiField struct {
	name    string
	number  int
	list    bool        // it is repeated
	mapped  bool        // it is a map from strings
	scalar  string      // the type, unless it is a message
	message *apiMessage // the type, if it is a message
}

// apiMessages are the definitions. They are parsed at the first call of the gRPC API.
var apiMessages = sync.OnceValue(func() map[string]*apiMessage {
	all := map[string]*apiMessage{}
	named := func(name string) *apiMessage {
		if all[name] == nil {
			all[name] = new(apiMessage)
		}
		return all[name]
	}
	for line := range strings.Lines(strings.ReplaceAll(APIDefinitions[1:], "\n  ", " ")) {
		words := strings.Fields(line)
		m := named(words[0])
		for _, word := range words[1:] {
			name, rest, _ := strings.Cut(word, "=")
			number, kind, _ := strings.Cut(rest, ":")
			f := apiField{name: name}
			f.number, _ = strconv.Atoi(number)
			kind, f.list = strings.CutPrefix(kind, "*")
			kind, f.mapped = strings.CutPrefix(kind, "%")
			if kind[0] >= 'A' && kind[0] <= 'Z' {
				f.message = named(kind)
			} else {
				f.scalar = kind
			}
			m.fields = append(m.fields, f)
		}
	}
	return all
})

// apiMessageOf returns the request or the response of a method of the gRPC API.
func apiMessageOf(method, kind string) *apiMessage {
	if m := apiMessages()[method+kind]; m != nil {
		return m
	}
	return apiMessages()["Unserved"+kind]
}

// field returns the field with that number, or nil.
func (m *apiMessage) field(number int) *apiField {
	for i := range m.fields {
		if m.fields[i].number == number {
			return &m.fields[i]
		}
	}
	return nil
}
