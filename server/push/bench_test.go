package push_test

const connectAndSubscribe = "{\"id\":1,\"connect\":{\"name\":\"js\"}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}"
