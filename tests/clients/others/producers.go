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
	Retries          int     `json:"retries"`
	AwaitsS          float64 `json:"awaits_s"`
	TransactionSize  int     `json:"transaction_size"`
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

// transactions calls commit with the first number of each transaction and the one behind its last, and tells of its
// records when it has committed.
func (l load) transactions(began time.Time, commit func(first, last int) (map[int]int64, error)) error {
	for first := 0; first < l.Records; first += l.TransactionSize {
		l.wait(began, first)
		last := min(first+l.TransactionSize, l.Records)
		for n := first; n < last; n++ {
			tell(event{Event: "sent", Partition: n % l.Partitions, N: n})
		}
		offsets, err := commit(first, last)
		if err != nil {
			return err
		}
		for n := first; n < last; n++ {
			told(n%l.Partitions, n, offsets[n], nil)
		}
	}
	return nil
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
	if l.Retries > 0 {
		config.Producer.Retry.Max = l.Retries
	}
	if l.IsIdempotent {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		// Idempotence demands it.
		config.Net.MaxOpenRequests = 1
	}
	if l.TransactionSize > 0 {
		config.Producer.Transaction.ID = fmt.Sprintf("%s-%d", l.Topic, l.Number)
	}
	producer, err := sarama.NewAsyncProducer(strings.Split(l.BootstrapServers, ","), config)
	if err != nil {
		return err
	}
	message := func(n int) *sarama.ProducerMessage {
		partition := n % l.Partitions
		return &sarama.ProducerMessage{
			Topic:     l.Topic,
			Partition: int32(partition),
			Value:     sarama.ByteEncoder(l.value("sarama", partition, n)),
			Metadata:  n,
		}
	}
	if l.TransactionSize > 0 {
		defer producer.AsyncClose()
		return l.transactions(time.Now(), func(first, last int) (map[int]int64, error) {
			if err := producer.BeginTxn(); err != nil {
				return nil, err
			}
			offsets := map[int]int64{}
			for n := first; n < last; n++ {
				producer.Input() <- message(n)
			}
			for range last - first {
				select {
				case sent := <-producer.Successes():
					offsets[sent.Metadata.(int)] = sent.Offset
				case failure := <-producer.Errors():
					return nil, failure
				}
			}
			return offsets, producer.CommitTxn()
		})
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
		tell(event{Event: "sent", Partition: n % l.Partitions, N: n})
		producer.Input() <- message(n)
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
	if l.Retries > 0 {
		options = append(options, kgo.RecordRetries(l.Retries))
	}
	if l.TransactionSize > 0 {
		options = append(options, kgo.TransactionalID(fmt.Sprintf("%s-%d", l.Topic, l.Number)))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	record := func(n int) *kgo.Record {
		partition := n % l.Partitions
		return &kgo.Record{
			Topic:     l.Topic,
			Partition: int32(partition),
			Value:     l.value("franz-go", partition, n),
		}
	}
	if l.TransactionSize > 0 {
		return l.transactions(time.Now(), func(first, last int) (map[int]int64, error) {
			if err := client.BeginTransaction(); err != nil {
				return nil, err
			}
			var records []*kgo.Record
			for n := first; n < last; n++ {
				records = append(records, record(n))
			}
			offsets := map[int]int64{}
			for at, result := range client.ProduceSync(context.Background(), records...) {
				if result.Err != nil {
					return nil, result.Err
				}
				offsets[first+at] = result.Record.Offset
			}
			return offsets, client.EndTransaction(context.Background(), kgo.TryCommit)
		})
	}
	began := time.Now()
	for n := range l.Records {
		l.wait(began, n)
		partition := n % l.Partitions
		tell(event{Event: "sent", Partition: partition, N: n})
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if l.AwaitsS > 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(l.AwaitsS*float64(time.Second)))
		}
		client.Produce(ctx, record(n), func(record *kgo.Record, err error) {
			cancel()
			told(partition, n, record.Offset, err)
		})
	}
	return client.Flush(context.Background())
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
