module example/notes

go 1.21

require github.com/aliyun/aliyun-tablestore-go-sdk v1.7.15

require (
	github.com/golang/protobuf v1.3.2 // indirect
	github.com/google/flatbuffers v23.5.26+incompatible // indirect
	github.com/hashicorp/golang-lru v0.5.4 // indirect
)
