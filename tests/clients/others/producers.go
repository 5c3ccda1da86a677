// Producers in Go for the tests: sarama and franz-go, each with its defaults but idempotent and small batches.
//
//	producers sarama|franz-go '{"bootstrap_servers": "h:p", "topic": "t", "records": 240, "partitions": 6, ...}'
//
// What becomes of each record is told on stdout as JSON lines; whoever started this keeps the journal.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load is what tests/support/clients/load.py writes, as far as it is used here.
type load struct {
	BootstrapServers string  `json:"bootstrap_servers"`
	Topic            string  `json:"topic"`
	Records          int     `json:"records"`
	Partitions       int     `json:"partitions"`
	Number           int     `json:"number"`
	SizeBytes        int     `json:"size_bytes"`
	IsBatched        bool    `json:"is_batched"`
	IsIdempotent     bool    `json:"is_idempotent"`
	IsNamed          bool    `json:"is_named"`
	RecordsPerS      float64 `json:"records_per_s"`
}

type event struct {
	Event     string `json:"event"`
	Partition int    `json:"partition"`
	N         int    `json:"n"`
	Offset    int64  `json:"offset"`
	Error     string `json:"error"`
}

var stdout sync.Mutex

func tell(told event) {
	line, _ := json.Marshal(told)
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Println(string(line))
}

func told(partition, n int, offset int64, err error) {
	if err != nil {
		tell(event{Event: "failed", Partition: partition, N: n, Error: err.Error()})
	} else {
		tell(event{Event: "acknowledged", Partition: partition, N: n, Offset: offset})
	}
}

func (l load) value(client string, partition, n int) []byte {
	label := fmt.Appendf(nil, "%s-%d|%d|%d|", client, l.Number, partition, n)
	return append(label, bytes.Repeat([]byte("."), max(0, l.SizeBytes-len(label)))...)
}

// wait comes back when record n is due.
func (l load) wait(began time.Time, n int) {
	if l.RecordsPerS > 0 {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n) / l.RecordsPerS * float64(time.Second)))))
	}
}

func runSarama(l load) error {
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Version = sarama.V3_6_0_0
	if !l.IsNamed {
		// The default of sarama 1.42, with ApiVersions of a version that has no names.
		config.Version = sarama.V2_1_0_0
		config.ClientID = "unnamed"
	}
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	if !l.IsBatched {
		config.Producer.Flush.MaxMessages = 1
	}
	if l.IsIdempotent {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		// Idempotence demands it.
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewAsyncProducer(strings.Split(l.BootstrapServers, ","), config)
	if err != nil {
		return err
	}
	var ended, settled sync.WaitGroup
	ended.Add(2)
	settled.Add(l.Records)
	go func() {
		defer ended.Done()
		for message := range producer.Successes() {
			told(int(message.Partition), message.Metadata.(int), message.Offset, nil)
			settled.Done()
		}
	}()
	go func() {
		defer ended.Done()
		for failure := range producer.Errors() {
			told(int(failure.Msg.Partition), failure.Msg.Metadata.(int), -1, failure.Err)
			settled.Done()
		}
	}()
	began := time.Now()
	for n := range l.Records {
		l.wait(began, n)
		partition := n % l.Partitions
		tell(event{Event: "sent", Partition: partition, N: n})
		producer.Input() <- &sarama.ProducerMessage{
			Topic:     l.Topic,
			Partition: int32(partition),
			Value:     sarama.ByteEncoder(l.value("sarama", partition, n)),
			Metadata:  n,
		}
	}
	// A producer that is being closed sends nothing again: it raises what is refused.
	settled.Wait()
	producer.AsyncClose()
	ended.Wait()
	return nil
}

func runFranz(l load) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(l.BootstrapServers, ",")...),
		kgo.ClientID("franz-go"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if !l.IsBatched {
		// The least that it takes: 40 records of a partition are five batches, all of them in flight.
		options = append(options, kgo.ProducerBatchMaxBytes(1<<10))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	began := time.Now()
	for n := range l.Records {
		l.wait(began, n)
		partition := n % l.Partitions
		tell(event{Event: "sent", Partition: partition, N: n})
		record := &kgo.Record{
			Topic:     l.Topic,
			Partition: int32(partition),
			Value:     l.value("franz-go", partition, n),
		}
		client.Produce(ctx, record, func(record *kgo.Record, err error) {
			told(partition, n, record.Offset, err)
		})
	}
	return client.Flush(ctx)
}

func main() {
	var l load
	if err := json.Unmarshal([]byte(os.Args[2]), &l); err != nil {
		panic(err)
	}
	run := map[string]func(load) error{"sarama": runSarama, "franz-go": runFranz}[os.Args[1]]
	if err := run(l); err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
}
